// Package podsecurity runs the test suite of k8s.io/pod-security-admission against keelson: pods that each version of each level
// allows and forbids.
package podsecurity

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	suite "k8s.io/pod-security-admission/test"

	"keelson/e2e/controlplane"
)

// fromEnvironment is the absolute path of a binary that an environment variable names.
func fromEnvironment(t *testing.T, name, otherwise string) string {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		path = otherwise
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUpstreamSuite(t *testing.T) {
	bin := controlplane.Binaries{
		Keelson: fromEnvironment(t, "KEELSON", "../../target/dist/keelson"),
		Etcd:    fromEnvironment(t, "KEELSON_ETCD", "../../.tools/bin/etcd"),
	}
	for _, store := range []string{"embedded", "etcd"} {
		t.Run(store, func(t *testing.T) {
			plane, err := controlplane.New(bin, t.TempDir(), store)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { plane.Stop() })
			for _, start := range []func() error{
				func() error { return plane.StartStore(t.Context()) },
				func() error { return plane.StartServer(t.Context()) },
				func() error { return plane.Bootstrap(t.Context()) },
			} {
				if err := start(); err != nil {
					t.Fatal(err)
				}
			}
			config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			config.QPS, config.Burst = -1, -1
			suite.Run(t, suite.Options{ClientConfig: rest.CopyConfig(config)})
		})
	}
}
