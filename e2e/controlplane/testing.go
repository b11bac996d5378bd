package controlplane

import (
	"os"
	"path/filepath"
	"testing"
)

// Binary is the absolute path of a program of this repository's tests: the one that an environment variable names, or else the one
// that is built or installed under the root of the repository. The test fails where there is none.
func Binary(t *testing.T, variable, otherwise string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join("..", "..", otherwise)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v (make e2e builds or installs it)", err)
	}
	return path
}

// Server is the server to test, alone.
func Server(t *testing.T) string {
	t.Helper()
	return Binary(t, "KEELSON", "target/dist/keelson")
}

// ForTest lays out a control plane that ends with the test; nothing runs yet. It has a controller manager and a scheduler if whole.
func ForTest(t *testing.T, store string, whole bool) *Plane {
	t.Helper()
	bin := Binaries{Keelson: Server(t), Etcd: Binary(t, "KEELSON_ETCD", ".tools/bin/etcd")}
	if whole {
		bin.ControllerManager = Binary(t, "KEELSON_CONTROLLER_MANAGER", ".tools/bin/kube-controller-manager")
		bin.Scheduler = Binary(t, "KEELSON_SCHEDULER", ".tools/bin/kube-scheduler")
	}
	plane, err := New(bin, t.TempDir(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plane.Stop() })
	return plane
}
