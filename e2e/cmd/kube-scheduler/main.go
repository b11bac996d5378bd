// Command kube-scheduler is the real scheduler, built from its module at the version that Keelson stands in for.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	// What the released binary registers.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() { os.Exit(cli.Run(app.NewSchedulerCommand())) }
