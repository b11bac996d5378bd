// Command sample-apiserver is upstream's sample of an extension API server, built from its module: the server behind an APIService
// in the checks of aggregation.
package main

import (
	"os"

	apiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/cmd/server"
)

func main() {
	options := server.NewWardleServerOptions(os.Stdout, os.Stderr)
	os.Exit(cli.Run(server.NewCommandStartWardleServer(apiserver.SetupSignalContext(), options, false)))
}
