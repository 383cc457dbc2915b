package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/coopr/coopr/plugins/sdk"
)

const (
	recordName = "node.json"
	addresses  = ".addresses"
	workDir    = ".work"
	// Transport is the value of the result "transport" with which automators use the node's folder
	// directly.
	Transport = "local"
)

// Record is the content of a node's node.json.
type Record struct {
	Tenant    string `json:"tenant"`
	Mesh      string `json:"mesh,omitempty"`
	Cluster   string `json:"cluster"`
	Node      string `json:"node"`
	Number    int    `json:"number"`
	Hostname  string `json:"hostname"`
	Address   string `json:"address"`
	Zone      string `json:"zone,omitempty"`
	Host      string `json:"host,omitempty"`
	Operation string `json:"operation"`
	Fence     uint64 `json:"fence"`
}

// output returns the task's output for the node.
func (r *Record) output(dir string) *sdk.Output {
	out := &sdk.Output{
		Hostname:    r.Hostname,
		IPAddresses: map[string]string{"access_v4": r.Address, "bind_v4": r.Address},
		Result:      map[string]any{"providerid": dir, "transport": Transport},
	}
	if r.Zone != "" {
		out.Result["zone"] = r.Zone
	}
	if r.Host != "" {
		out.Result["host"] = r.Host
	}
	return out
}

// safeName matches text that may be part of a path.
var safeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// place is the location of a task's node, which may not exist yet.
type place struct {
	base string   // absolute path of the root folder
	root *os.Root // prevents access outside of the folder, also through links
	name string   // <cluster>/<number>, relative to base
}

func (p *place) close()      { p.root.Close() }
func (p *place) dir() string { return filepath.Join(p.base, p.name) }

// open opens the root folder, and creates it if needed.
func (p *Provider) open(fields map[string]any) (*os.Root, string, error) {
	base := p.defaultRoot
	switch v := fields["root"].(type) {
	case nil:
	case string:
		if v != "" {
			base = v
		}
	default:
		return nil, "", sdk.Fatal(fmt.Errorf("field root must be text, not %v", v))
	}
	if err := checkRoot(base); err != nil {
		return nil, "", sdk.Fatal(err)
	}
	base = filepath.Clean(base)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, "", sdk.NothingDone(fmt.Errorf("create the folder of nodes: %w", err))
	}
	// Processes are identified by their folder's path, which therefore must not contain links.
	base, err := filepath.EvalSymlinks(base)
	if err != nil {
		return nil, "", sdk.NothingDone(err)
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, "", sdk.NothingDone(err)
	}
	for _, d := range []string{addresses, workDir} {
		if err := root.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			root.Close()
			return nil, "", sdk.NothingDone(err)
		}
	}
	return root, base, nil
}

func checkRoot(base string) error {
	switch {
	case base == "":
		return errors.New("provider local: set the field root, or COOPR_LOCAL_ROOT of its plugin, to a folder for nodes")
	case !filepath.IsAbs(base):
		return fmt.Errorf("provider local: root must be an absolute path, not %q", base)
	case filepath.Clean(base) == "/":
		return errors.New("provider local: root must be a folder of its own, not /")
	}
	return nil
}

// place returns the location of a task's node, which follows from cluster and node number alone.
func (p *Provider) place(t *sdk.Task) (*place, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	number := strconv.Itoa(int(in.Config.NodeNum))
	if !safeName.MatchString(t.Cluster) {
		return nil, sdk.Fatal(fmt.Errorf("cluster id %q cannot be part of a folder's name", t.Cluster))
	}
	root, base, err := p.open(in.Config.Provider.Provisioner)
	if err != nil {
		return nil, err
	}
	return &place{base: base, root: root, name: path.Join(t.Cluster, number)}, nil
}

// read returns the record of the node at name, or fs.ErrNotExist.
func read(root *os.Root, name string) (*Record, error) {
	// A node is a real folder; a link in its place is not followed.
	for _, part := range []string{path.Dir(name), name, path.Join(name, recordName)} {
		fi, err := root.Lstat(part)
		if err != nil {
			return nil, err
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%s is a link, not a node's folder: remove it by hand", part)
		}
	}
	b, err := root.ReadFile(path.Join(name, recordName))
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("decode the record of node %s: %w", name, err)
	}
	return &r, nil
}
