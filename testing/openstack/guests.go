package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/coopr/coopr/testing/lab"
)

// Guests are light machines for servers. They boot as a cloud's images do: cloud-init,
// Debian's own, reads the configuration drive and makes users, keys and the host name.
// No other key opens them.
type Guests struct {
	lab   *lab.Lab
	layer string

	mu sync.Mutex
	by map[string]*lab.Machine
}

// Guests returns machines of the cloud's lab, none at first.
func (c *Cloud) Guests() *Guests {
	return &Guests{lab: c.Lab, layer: filepath.Join(c.cache, "guest"), by: map[string]*lab.Machine{}}
}

// cloudInit are the settings of a cloud's image: where its data is, and what it is not
// to touch in a machine without a disk and a way out.
const cloudInit = `datasource_list: [ConfigDrive]
network: {config: disabled}
apt: {preserve_sources_list: true}
growpart: {mode: "off"}
resize_rootfs: false
locale: false
`

// drive is the folder that cloud-init takes for a drive.
const drive = "var/lib/cloud/seed/config_drive/openstack/latest/"

// Boot starts a server's machine.
func (g *Guests) Boot(ctx context.Context, s Server) error {
	if m := g.machine(s.ID); m != nil {
		return m.Boot(ctx)
	}
	metadata, err := json.Marshal(s.Metadata)
	if err != nil {
		return err
	}
	m, err := g.lab.Start(ctx, lab.Spec{
		Name: "server-" + s.ID, Addr: s.Address, Systemd: true, Layers: []string{g.layer},
		Files: map[string]string{
			"etc/cloud/cloud.cfg.d/99_lab.cfg": cloudInit,
			drive + "meta_data.json":           string(metadata),
			drive + "user_data":                string(s.UserData),
			"root/.ssh/authorized_keys":        "",
			"home/debian/.ssh/authorized_keys": "",
		},
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by[s.ID] = m
	return nil
}

// Stop is a power cut.
func (g *Guests) Stop(id string) error {
	if m := g.machine(id); m != nil {
		return m.Crash()
	}
	return nil
}

// Delete takes a server's machine away.
func (g *Guests) Delete(id string) error {
	m := g.machine(id)
	if m == nil {
		return nil
	}
	g.mu.Lock()
	delete(g.by, id)
	g.mu.Unlock()
	return m.Destroy()
}

// Lose takes a server's machine away without a word to Nova, which goes on to say
// that it is ACTIVE.
func (g *Guests) Lose(id string) error {
	if g.machine(id) == nil {
		return fmt.Errorf("server %s has no machine", id)
	}
	return g.Delete(id)
}

// Running is how many machines there are.
func (g *Guests) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.by)
}

func (g *Guests) machine(id string) *lab.Machine {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.by[id]
}
