package plugins

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coopr/coopr/plugins/provider/digitalocean"
	"github.com/coopr/coopr/plugins/provider/docker"
	"github.com/coopr/coopr/plugins/provider/gcp"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/joyent"
	"github.com/coopr/coopr/plugins/provider/libvirt"
	"github.com/coopr/coopr/plugins/provider/openstack"
	"github.com/coopr/coopr/plugins/provider/vsphere"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

type lister interface {
	List(context.Context, sdk.ListRequest, func(sdk.Resource) error) error
}

// TestGuard checks that no provider of rented machines sends a request to an address that its guard
// refuses, and that none quotes the answer of something that is no cloud.
func TestGuard(t *testing.T) {
	var sent atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		http.Error(w, "hunter2", http.StatusForbidden)
	}))
	defer s.Close()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	account, _ := json.Marshal(map[string]string{"type": "service_account", "project_id": "p", "private_key_id": "k", "client_email": "c@p",
		"token_uri": s.URL, "private_key": private})
	for name, x := range map[string]struct {
		open   func(ssh.Keys) *instance.Provider
		fields map[string]any
	}{
		"vsphere":      {vsphere.New, map[string]any{"url": s.URL + "/sdk", "username": "u", "password": "p"}},
		"digitalocean": {digitalocean.New, map[string]any{"token": "t", "region": "r", "endpoint": s.URL}},
		"gcp":          {gcp.New, map[string]any{"json_key": string(account), "zone": "z", "endpoint": s.URL}},
		"joyent":       {joyent.New, map[string]any{"joyent_username": "u", "joyent_key": private, "joyent_api_url": s.URL}},
		"openstack": {openstack.New, map[string]any{"auth_url": s.URL + "/v3", "username": "u", "password": "p", "project": "p",
			"region": "r"}},
		"rackspace": {openstack.NewRackspace, map[string]any{"rackspace_username": "u", "rackspace_api_key": "k", "rackspace_region": "r",
			"auth_url": s.URL}},
	} {
		for allow, says := range map[string]string{"": "providers.endpoints", "127.0.0.0/8,::1/128": "403"} {
			guard, err := instance.ParseGuard(allow)
			if err != nil {
				t.Fatal(err)
			}
			sent.Store(0)
			p := x.open(nil)
			p.Protect(guard)
			err = p.List(t.Context(), sdk.ListRequest{Tenant: "t", Fields: x.fields}, func(sdk.Resource) error { return nil })
			p.Close()
			if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") || (sent.Load() > 0) != (allow != "") {
				t.Errorf("%s, allowed %q: %v, %d requests were answered", name, allow, err, sent.Load())
			}
		}
	}
	sent.Store(0)
	address := strings.TrimPrefix(s.URL, "http://")
	guard := instance.NewGuard(nil)
	daemon, engine := libvirt.New(nil), docker.New(nil, guard)
	daemon.Protect(guard)
	defer daemon.Close()
	defer engine.Close()
	for name, x := range map[string]struct {
		lister
		field, value string
	}{"libvirt": {daemon, "host", address}, "docker": {engine, "engine", "tcp://" + address}} {
		err := x.List(t.Context(), sdk.ListRequest{Tenant: "t", Fields: map[string]any{x.field: x.value}}, func(sdk.Resource) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "providers.endpoints") || sent.Load() > 0 {
			t.Errorf("%s: %v, %d requests were answered", name, err, sent.Load())
		}
	}
}
