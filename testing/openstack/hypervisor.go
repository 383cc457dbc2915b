package openstack

import (
	"context"
	"encoding/base64"
	"net/netip"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
)

// Server is what a hypervisor knows about a server: its address, and the data for the server's
// configuration drive.
type Server struct {
	ID       string
	Address  netip.Addr
	UserData []byte
	Metadata ConfigDrive
}

// ConfigDrive is the content of meta_data.json on a configuration drive.
type ConfigDrive struct {
	UUID       string            `json:"uuid"`
	Name       string            `json:"name"`
	Hostname   string            `json:"hostname"`
	Zone       string            `json:"availability_zone"`
	Meta       map[string]string `json:"meta,omitempty"`
	PublicKeys map[string]string `json:"public_keys,omitempty"`
}

// Machines runs the servers. Its methods are never called concurrently.
type Machines interface {
	// Boot starts a server's machine. A stopped machine keeps its disk.
	Boot(context.Context, Server) error
	// Stop stops a server's machine like a power cut.
	Stop(id string) error
	// Delete removes a server's machine, which may be stopped.
	Delete(id string) error
}

// Hypervisor starts a machine for every server that Nova reports as ACTIVE, and removes it with the
// server, until the test ends.
func (c *Cloud) Hypervisor(m Machines) {
	h := &hypervisor{cloud: c, machines: m, on: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { h.run(ctx) })
	c.t.Cleanup(func() {
		cancel()
		work.Wait()
		for id := range h.on {
			if err := m.Delete(id); err != nil {
				c.t.Error(err)
			}
		}
	})
}

type hypervisor struct {
	cloud    *Cloud
	machines Machines
	on       map[string]bool // whether a server's machine runs, by server id
}

func (h *hypervisor) run(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := h.cloud.servers(ctx)
		if err == nil { // otherwise the next tick tries again
			h.follow(ctx, list)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// server is a server as Nova shows it to administrators.
type server struct {
	ID, Name, Status string
	Metadata         map[string]string
	UserData         string `json:"OS-EXT-SRV-ATTR:user_data"`
	Hostname         string `json:"OS-EXT-SRV-ATTR:hostname"`
	Zone             string `json:"OS-EXT-AZ:availability_zone"`
	KeyName          string `json:"key_name"`
	UserID           string `json:"user_id"`
	Addresses        map[string][]struct {
		Addr    netip.Addr `json:"addr"`
		Version int        `json:"version"`
	}
}

// address returns the server's IPv4 address, or the zero address if it has none yet.
func (s *server) address() (a netip.Addr) {
	for _, list := range s.Addresses {
		for _, x := range list {
			if x.Version == 4 {
				return x.Addr
			}
		}
	}
	return a
}

// servers returns the servers of all projects.
func (c *Cloud) servers(ctx context.Context) (list []server, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	pages, err := servers.List(c.nova, servers.ListOpts{AllTenants: true}).AllPages(ctx)
	if err == nil {
		err = servers.ExtractServersInto(pages, &list)
	}
	return list, err
}

// follow starts, stops and deletes machines according to Nova's list of servers.
func (h *hypervisor) follow(ctx context.Context, list []server) {
	there := map[string]bool{}
	for _, s := range list {
		there[s.ID] = true
	}
	// Deleted servers come first, because a new server may have the address of one of them.
	for id := range h.on {
		if !there[id] {
			delete(h.on, id)
			h.check(ctx, h.machines.Delete(id))
		}
	}
	for _, s := range list {
		switch on := h.on[s.ID]; {
		case s.Status == "ACTIVE" && !on && s.address().IsValid():
			h.on[s.ID] = true
			h.check(ctx, h.boot(ctx, &s))
		case s.Status == "SHUTOFF" && on:
			h.on[s.ID] = false
			h.check(ctx, h.machines.Stop(s.ID))
		}
	}
}

func (h *hypervisor) check(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		h.cloud.t.Errorf("the hypervisor: %v", err)
	}
}

func (h *hypervisor) boot(ctx context.Context, s *server) error {
	data, err := base64.StdEncoding.DecodeString(s.UserData)
	if err != nil {
		return err
	}
	drive := ConfigDrive{UUID: s.ID, Name: s.Name, Hostname: s.Hostname, Zone: s.Zone, Meta: s.Metadata}
	if s.KeyName != "" {
		of := *h.cloud.nova
		of.Microversion = "2.10" // the first in which administrators see the keys of others
		key, err := keypairs.Get(ctx, &of, s.KeyName, keypairs.GetOpts{UserID: s.UserID}).Extract()
		if err != nil {
			return err
		}
		drive.PublicKeys = map[string]string{s.KeyName: key.PublicKey}
	}
	return h.machines.Boot(ctx, Server{ID: s.ID, Address: s.address(), UserData: data, Metadata: drive})
}
