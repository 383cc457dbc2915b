// Coopr-node keeps processes running on a local node; scripts call it.
package main

import (
	"os"

	"github.com/coopr/coopr/plugins/provider/local/machine"
)

func main() { os.Exit(machine.Main(os.Args[1:], os.Stdout, os.Stderr)) }
