package hosts

import (
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// machine is one entry of the inventory.
type machine struct {
	Name     string // unique; default: the address
	Address  string // for agents
	Internal string // for other nodes; default: Address
	Port     int
	Flavor   string // "": any flavor
	Image    string // "": any image
	Zone     string // "": only for nodes without a zone
	User     string // "": that of the field
	Keys     string // host keys, one per line; "": recorded at the first contact
}

// settings are the parsed fields of the provider.
type settings struct {
	machines []machine
	auth     ssh.Results // user and credentials
	jumps    any
	reset    string // a script, the name of a resource that is one, or ""
}

// entryKeys are the keys of the inventory's entries.
var entryKeys = []string{"address", "name", "internal", "port", "flavor", "image", "zone", "user", "hostkey"}

// parse decodes the provider's fields and returns all their faults.
func parse(fields map[string]any) (*settings, model.Faults) {
	var faults model.Faults
	s := &settings{}
	text := func(name string) string {
		switch v := fields[name].(type) {
		case nil:
			return ""
		case string:
			return strings.TrimSpace(v)
		default:
			faults.Add(name, "must be text")
			return ""
		}
	}
	s.auth = ssh.Results{User: text("ssh_user"), Identity: text("ssh_identityfile"), PrivateKey: text("ssh_private_key"),
		Password: text("ssh_password"), Dir: text("ssh_dir")}
	if s.auth.Identity == "" && s.auth.PrivateKey == "" && s.auth.Password == "" {
		faults.Add("ssh_identityfile", "no credentials: set ssh_identityfile, ssh_private_key or ssh_password")
	}
	if s.auth.PrivateKey != "" {
		if _, err := ssh.ParseKey([]byte(s.auth.PrivateKey)); err != nil {
			faults.Add("ssh_private_key", err.Error())
		}
	}
	if s.auth.Dir != "" && !strings.HasPrefix(s.auth.Dir, "/") {
		faults.Add("ssh_dir", "must be an absolute path")
	}
	s.jumps = fields["ssh_jump"]
	if s.reset = text("reset"); s.reset != "" {
		if why := sdk.CheckScript(s.reset); why != "" {
			faults.Add("reset", why)
		}
	}
	port := 22
	if p := fields["ssh_port"]; p != nil && p != "" {
		var err error
		if port, err = strconv.Atoi(fmt.Sprint(p)); err != nil || port < 1 || port > 65535 {
			faults.Add("ssh_port", "must be a port number")
		}
	}
	var entries []any
	switch v := fields["inventory"].(type) {
	case nil:
	case []any:
		entries = v
	case string:
		for line := range strings.Lines(v) {
			if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
				entries = append(entries, line)
			}
		}
	default:
		faults.Add("inventory", "must be text with one machine per line, or a list")
	}
	if len(entries) == 0 && fields["inventory"] != nil {
		faults.Add("inventory", "is empty: add at least one machine")
	}
	seen := map[string]bool{}
	for i, e := range entries {
		at := fmt.Sprintf("inventory[%d]", i)
		m, err := entry(e)
		if err == nil && m.Port == 0 {
			m.Port = port
		}
		switch {
		case err != nil:
			faults.Add(at, err.Error())
		case seen[m.Name] || seen[m.Address+" "+strconv.Itoa(m.Port)]:
			faults.Add(at, fmt.Sprintf("%s is listed twice", m.Name))
		default:
			if _, err := ssh.ParseHostKeys(m.Keys); err != nil {
				faults.Add(at+".hostkey", err.Error())
			}
			seen[m.Name], seen[m.Address+" "+strconv.Itoa(m.Port)] = true, true
			s.machines = append(s.machines, *m)
		}
	}
	if len(faults) == 0 {
		zones, _ := (&model.Provider{Provisioner: fields}).Places()
		for _, zone := range zones {
			if !slices.ContainsFunc(s.machines, func(m machine) bool { return m.Zone == zone }) {
				faults.Add("zones", fmt.Sprintf("no machine of the inventory is in zone %s: add zone=%s to those that are", zone, zone))
			}
		}
	}
	return s, faults
}

// entry decodes one machine: "ADDRESS key=value …", or an object.
func entry(v any) (*machine, error) {
	values := map[string]string{}
	switch e := v.(type) {
	case string:
		words := strings.Fields(e)
		for i, w := range words {
			key, value, pair := strings.Cut(w, "=")
			switch {
			case i == 0 && !pair:
				values["address"] = w
			case !pair:
				return nil, fmt.Errorf("%q is not key=value", w)
			default:
				values[key] = value
			}
		}
	case map[string]any:
		for k, v := range e {
			values[k] = fmt.Sprint(v)
		}
	default:
		return nil, fmt.Errorf("must be text or an object")
	}
	for k := range values {
		if !slices.Contains(entryKeys, k) {
			return nil, fmt.Errorf("%q is not one of %s", k, strings.Join(entryKeys, ", "))
		}
	}
	m := &machine{Address: values["address"], Name: values["name"], Internal: values["internal"], Flavor: values["flavor"],
		Image: values["image"], Zone: values["zone"], User: values["user"], Keys: values["hostkey"]}
	// In a line, the type and the text of a key are joined with a colon, because a space would end
	// the word.
	m.Keys = strings.Replace(m.Keys, ":", " ", 1)
	if values["port"] != "" {
		var err error
		if m.Port, err = strconv.Atoi(values["port"]); err != nil || m.Port < 1 || m.Port > 65535 {
			return nil, fmt.Errorf("port %q is not a port number", values["port"])
		}
	}
	if m.Address == "" || strings.ContainsAny(m.Address, " /@") {
		return nil, fmt.Errorf("address %q is not a host name or an address", m.Address)
	}
	if m.Name == "" {
		m.Name = m.Address
	}
	if m.Internal == "" {
		m.Internal = m.Address
	}
	return m, nil
}

// at returns the address of the machine's sshd.
func (m *machine) at() string { return net.JoinHostPort(m.Address, strconv.Itoa(m.Port)) }

// fits reports whether a machine matches a node's flavor, image and zone.
func (m *machine) fits(c *model.TaskConfig) bool {
	return (m.Flavor == "" || m.Flavor == c.Flavor) && (m.Image == "" || m.Image == c.Image) && (c.Zone == "" || m.Zone == c.Zone)
}

// order returns the machines in the order in which a node tries them. The order differs from node
// to node, so that concurrent creates rarely try the same machine.
func order(machines []machine, node string) []machine {
	weight := func(m machine) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(node + "\x00" + m.Name))
		return h.Sum64()
	}
	sorted := slices.Clone(machines)
	slices.SortStableFunc(sorted, func(a, b machine) int {
		// Machines for one flavor come first, because the others may be needed by other flavors.
		if (a.Flavor == "") != (b.Flavor == "") {
			if a.Flavor != "" {
				return -1
			}
			return 1
		}
		x, y := weight(a), weight(b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return sorted
}

// results returns how automators reach a machine.
func (s *settings) results(m *machine) ssh.Results {
	r := s.auth
	if m.User != "" {
		r.User = m.User
	}
	r.Address, r.Port = m.Address, m.Port
	return r
}

// target returns how this plugin reaches a machine. It has no host keys if the inventory has none.
func (s *settings) target(m *machine, keys ssh.Keys) (*ssh.Target, error) {
	r := s.results(m)
	t := &ssh.Target{Hop: ssh.Hop{Address: m.at(), User: r.User, Password: r.Password}, Dir: r.Dir}
	if t.User == "" {
		t.User = "root"
	}
	t.Sudo = t.User != "root"
	var err error
	switch {
	case r.PrivateKey != "":
		t.Signer, err = ssh.ParseKey([]byte(r.PrivateKey))
	case r.Identity != "":
		t.Signer, err = keys.Signer(r.Identity)
	}
	if err != nil {
		return nil, err
	}
	if t.HostKeys, err = ssh.ParseHostKeys(m.Keys); err != nil {
		return nil, err
	}
	t.Jumps, err = ssh.JumpsOf(s.jumps, keys)
	return t, err
}
