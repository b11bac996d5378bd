// Package podsecurity runs the test suite of k8s.io/pod-security-admission against keelson: pods that each version of each level
// allows and forbids.
package podsecurity

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	suite "k8s.io/pod-security-admission/test"

	"keelson/e2e/controlplane"
)

func TestUpstreamSuite(t *testing.T) {
	for _, store := range []string{"embedded", "etcd"} {
		t.Run(store, func(t *testing.T) {
			plane := controlplane.ForTest(t, store, false)
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
