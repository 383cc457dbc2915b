// Package plugins contains the test that compares the plugins' pages with the plugins.
package plugins

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/automator/ansible"
	"github.com/coopr/coopr/plugins/automator/chef"
	dockerautomator "github.com/coopr/coopr/plugins/automator/docker"
	"github.com/coopr/coopr/plugins/automator/puppet"
	"github.com/coopr/coopr/plugins/automator/shell"
	"github.com/coopr/coopr/plugins/pagetest"
	"github.com/coopr/coopr/plugins/provider/digitalocean"
	"github.com/coopr/coopr/plugins/provider/docker"
	"github.com/coopr/coopr/plugins/provider/gcp"
	"github.com/coopr/coopr/plugins/provider/hosts"
	"github.com/coopr/coopr/plugins/provider/joyent"
	"github.com/coopr/coopr/plugins/provider/libvirt"
	"github.com/coopr/coopr/plugins/provider/local"
	"github.com/coopr/coopr/plugins/provider/openstack"
	"github.com/coopr/coopr/plugins/provider/vsphere"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// TestPages checks that every plugin has a page that agrees with its descriptor. The page of aws is
// checked in that plugin's own module.
func TestPages(t *testing.T) {
	const docs = "../docs/plugins/"
	var keys ssh.Keys
	rented := []string{docs + "instances.md"}
	pages := map[string]struct {
		plugin  sdk.Describer
		further []string
	}{
		"ansible":          {plugin: ansible.New(ansible.Config{})},
		"chef-solo":        {plugin: chef.New(chef.Config{})},
		"docker-automator": {plugin: dockerautomator.New(keys)},
		"puppet":           {plugin: puppet.New(keys)},
		"shell":            {plugin: shell.New(shell.Config{})},
		"docker":           {plugin: docker.New(keys, nil)},
		"hosts":            {plugin: hosts.New(keys)},
		"local":            {plugin: local.New("", "")},
		"digitalocean":     {digitalocean.New(keys), rented},
		"gcp":              {gcp.New(keys), rented},
		"joyent":           {joyent.New(keys), rented},
		"libvirt":          {libvirt.New(keys), rented},
		"openstack":        {openstack.New(keys), rented},
		"rackspace":        {openstack.NewRackspace(keys), rented},
		"vsphere":          {vsphere.New(keys), rented},
	}
	for name, p := range pages {
		t.Run(name, func(t *testing.T) {
			if c, ok := p.plugin.(interface{ Close() }); ok {
				defer c.Close()
			}
			pagetest.Check(t, p.plugin, docs+name+".md", p.further...)
		})
	}

	// A new plugin needs a page and a line above.
	programs, err := filepath.Glob("*/coopr-*-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range programs {
		kind, name, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), "coopr-"), "-")
		if kind == "automator" && name == "docker" {
			name = "docker-automator"
		}
		if pages[name].plugin == nil {
			t.Errorf("%s has no page that this test reads", dir)
		}
	}
}
