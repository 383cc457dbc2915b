package openstack

import (
	"context"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/instance/rest"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

// Version is the plugins' version.
const Version = "1.0.0"

// New returns the provider of clouds with Keystone.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "openstack", Label: "OpenStack", Description: "Nodes are servers of an OpenStack cloud"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"auth_url": {Label: "Keystone", Type: "text", Tip: "https://HOST:5000/v3"},
				"region":   {Label: "Region", Type: "text"},
				"username": {Label: "User", Type: "text", Credential: true},
				"password": {Label: "Password", Type: "password"},
				"project":  {Label: "Project", Type: "text"},
				"domain":   {Label: "Domain", Type: "text", Default: "Default", Tip: "Domain of user and project"},
				"application_credential": {Label: "Application credential", Type: "text", Credential: true,
					Tip: "Id of the credential, which replaces user, password and project"},
				"application_credential_secret": {Label: "Its secret", Type: "password"},
				"networks": {Label: "Networks", Type: "text",
					Tip: "Comma-separated names or ids; the first is the nodes' own. Default: the project's only network"},
				"security_groups": {Label: "Security groups", Type: "text", Tip: "Comma-separated names; default: the group default"},
				"key_name":        {Label: "Key pair", Type: "text", Tip: "A key pair of the user, installed in addition to the node's own key"},
				"interface": {Label: "Interface", Type: "select", Options: []string{"public", "internal"}, Default: "public",
					Tip: "Which of the catalog's addresses agents use"},
			},
			Required: [][]string{{"auth_url", "username", "password", "project"},
				{"auth_url", "application_credential", "application_credential_secret"}},
		}},
	}})
}

func open(f *instance.Fields) instance.Cloud {
	f.Need("auth_url")
	domain := f.Text("domain", "Default")
	auth := gophercloud.AuthOptions{
		IdentityEndpoint: f.URL("auth_url", ""), Username: f.Text("username", ""), Password: f.Text("password", ""), DomainName: domain,
		AllowReauth:             true,
		ApplicationCredentialID: f.Text("application_credential", ""), ApplicationCredentialSecret: f.Text("application_credential_secret", ""),
	}
	if auth.ApplicationCredentialID != "" {
		auth.Username, auth.Password, auth.DomainName = "", "", ""
		f.Need("application_credential_secret")
	} else {
		f.Need("username")
		f.Need("password")
		auth.Scope = &gophercloud.AuthScope{ProjectName: f.Need("project"), DomainName: domain}
	}
	where := gophercloud.EndpointOpts{Region: f.Text("region", ""), Availability: gophercloud.AvailabilityPublic}
	if f.OneOf("interface", "public", "internal") == "internal" {
		where.Availability = gophercloud.AvailabilityInternal
	}
	c := &cloud{networks: f.List("networks"), groups: f.List("security_groups"), keyName: f.Text("key_name", "")}
	guard := f.Guard
	c.login = func(ctx context.Context) (*session, error) {
		p, err := openstack.NewClient(auth.IdentityEndpoint)
		if err != nil {
			return nil, err
		}
		p.HTTPClient = *rest.NewHTTP(guard)
		if err := openstack.Authenticate(ctx, p, auth); err != nil {
			return nil, err
		}
		s := &session{}
		for _, x := range []struct {
			client **gophercloud.ServiceClient
			make   func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
		}{{&s.compute, openstack.NewComputeV2}, {&s.image, openstack.NewImageV2}, {&s.network, openstack.NewNetworkV2}} {
			if *x.client, err = x.make(p, where); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
	return c
}
