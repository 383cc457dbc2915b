package openstack

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/instance/rest"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

const rackspaceIdentity = "https://identity.api.rackspacecloud.com/v2.0"

// NewRackspace returns the provider of Rackspace's public cloud.
func NewRackspace(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: openRackspace, Type: model.PluginType{
		Base:   model.Base{Name: "rackspace", Label: "Rackspace", Description: "Nodes are cloud servers of Rackspace"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"rackspace_username": {Label: "User", Type: "text", Credential: true},
				"rackspace_api_key":  {Label: "API key", Type: "password"},
				"rackspace_region":   {Label: "Region", Type: "text", Tip: "Such as DFW", Override: true},
				"networks":           {Label: "Networks", Type: "text", Tip: "Comma-separated ids; default: PublicNet and ServiceNet"},
				"key_name":           {Label: "Key pair", Type: "text", Tip: "A key pair of the account, installed in addition to the node's own key"},
				"auth_url":           {Label: "Identity", Type: "text", Default: rackspaceIdentity},
			},
			Required: [][]string{{"rackspace_username", "rackspace_api_key", "rackspace_region"}},
		}},
	}})
}

func openRackspace(f *instance.Fields) instance.Cloud {
	identity, user, key, region := f.URL("auth_url", rackspaceIdentity), f.Need("rackspace_username"), f.Need("rackspace_api_key"),
		f.Need("rackspace_region")
	c := &cloud{networks: f.List("networks"), keyName: f.Text("key_name", "")}
	client := rest.NewHTTP(f.Guard)
	c.login = func(ctx context.Context) (*session, error) {
		token, url, err := rackspaceLogin(ctx, client, identity, user, key, region)
		if err != nil {
			return nil, err
		}
		p := &gophercloud.ProviderClient{TokenID: token, HTTPClient: *client}
		p.UseTokenLock()
		p.ReauthFunc = func(ctx context.Context) error {
			again, _, err := rackspaceLogin(ctx, client, identity, user, key, region)
			if err == nil {
				p.TokenID = again
			}
			return err
		}
		return &session{compute: &gophercloud.ServiceClient{ProviderClient: p, Endpoint: strings.TrimRight(url, "/") + "/", Type: "compute"}}, nil
	}
	return c
}

// rackspaceLogin returns a token and the address of the region's servers. It is Rackspace's own
// login, because Keystone does not support API keys.
func rackspaceLogin(ctx context.Context, client *http.Client, identity, user, key, region string) (token, url string, err error) {
	var answer struct {
		Access struct {
			Token          struct{ ID string }
			ServiceCatalog []struct {
				Name      string
				Endpoints []struct{ Region, PublicURL string }
			}
		}
	}
	api := &rest.Client{HTTP: client, Base: identity, Judge: func(_ int, body []byte) (string, instance.Kind) { return said(body), 0 }}
	in := map[string]any{"auth": map[string]any{"RAX-KSKEY:apiKeyCredentials": map[string]string{"username": user, "apiKey": key}}}
	if err := api.Do(ctx, http.MethodPost, "/tokens", in, &answer); err != nil {
		return "", "", err
	}
	var regions []string
	for _, s := range answer.Access.ServiceCatalog {
		if s.Name != "cloudServersOpenStack" {
			continue
		}
		for _, e := range s.Endpoints {
			if strings.EqualFold(e.Region, region) {
				return answer.Access.Token.ID, e.PublicURL, nil
			}
			regions = append(regions, e.Region)
		}
	}
	known, _ := json.Marshal(regions)
	return "", "", instance.Faultf(instance.Invalid, "the account has no servers in region %s; its regions are %s", region, known)
}
