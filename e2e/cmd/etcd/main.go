// Command etcd is the real etcd server, built from its module so that tests need no package of the distribution.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
