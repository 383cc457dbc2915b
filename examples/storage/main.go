// Storage writes a site of change objects for a storage installation: pairs of servers with 50
// objects each, many of which depend on other servers. It runs anywhere: configurations are files
// below a folder, all other objects only note what they would do.
//
//	go run ./examples/storage --servers 4 --agents a,b,c --dir /tmp/storage >storage.json
//	coopr change apply storage.json --wait
//
// Then run it with --base 2: the configuration of the first array changes, and exactly the objects
// that depend on it are stopped and started again, in order.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/examples/storage/installation"
)

func main() {
	servers := flag.Int("servers", 4, "number of servers, which come in pairs")
	agents := flag.String("agents", "", "comma-separated names of the agents whose machines play the servers (required)")
	dir := flag.String("dir", "/tmp/coopr-storage", "folder for files and notes, on each of these machines")
	version := flag.Int("version", 1, "version of the site; another version makes every object outdated")
	base := flag.Int("base", 1, "version of the first array's configuration only")
	flag.Parse()
	if err := run(*servers, strings.Split(*agents, ","), *dir, *version, *base); err != nil {
		fmt.Fprintln(os.Stderr, "storage:", err)
		os.Exit(1)
	}
}

func run(servers int, agents []string, dir string, version, base int) error {
	if servers < 1 || agents[0] == "" {
		return fmt.Errorf("set --servers to 1 or more, and set --agents")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	d := installation.Document(installation.Config{Servers: servers, Version: version, Base: base,
		Host: func(s int) string { return "agent:" + agents[s%len(agents)] }})
	installation.Real(d, dir)
	if _, err := compile.Site(d, compile.Options{}); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(d)
}
