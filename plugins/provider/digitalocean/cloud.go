package digitalocean

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/instance/rest"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

// Version is the plugin's version.
const Version = "1.0.0"

// New returns the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "digitalocean", Label: "DigitalOcean", Description: "Nodes are droplets of DigitalOcean"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"token":  {Label: "API token", Type: "password", Tip: "Token of the account or a project, with the scopes droplet and tag"},
				"region": {Label: "Region", Type: "text", Tip: "Such as fra1; set zones for several", Override: true},
				"vpc":    {Label: "VPC", Type: "text", Tip: "Id of the network; default: that of the region"},
				"ssh_keys": {Label: "Account's SSH keys", Type: "text",
					Tip: "Comma-separated ids or fingerprints of keys that are installed in addition to the node's own key"},
				"endpoint": {Label: "API", Type: "text", Default: defaultEndpoint},
			},
			Required: [][]string{{"token", "region"}},
		}},
	}})
}

const defaultEndpoint = "https://api.digitalocean.com"

// cloud is an account.
type cloud struct {
	api         *rest.Client
	region, vpc string
	keys        []string
}

func open(f *instance.Fields) instance.Cloud {
	token := f.Need("token")
	return &cloud{
		api: &rest.Client{Base: f.URL("endpoint", defaultEndpoint), HTTP: rest.NewHTTP(f.Guard), Judge: judge,
			Sign: func(_ context.Context, r *http.Request) error {
				r.Header.Set("Authorization", "Bearer "+token)
				return nil
			}},
		region: f.Need("region"), vpc: f.Text("vpc", ""), keys: f.List("ssh_keys"),
	}
}

// judge reads the API's reason for a refusal.
func judge(status int, body []byte) (string, instance.Kind) {
	var e struct{ ID, Message string }
	_ = json.Unmarshal(body, &e)
	switch {
	case status == http.StatusUnprocessableEntity && strings.Contains(strings.ToLower(e.Message), "limit"):
		return "quota: " + e.Message, instance.Quota
	case status == http.StatusUnprocessableEntity && strings.Contains(e.Message, "not available"):
		return e.Message, instance.Capacity
	}
	return e.Message, 0
}

// droplet is a machine in the API's form.
type droplet struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	Status   string    `json:"status"` // new, active, off, archive
	Created  time.Time `json:"created_at"`
	Tags     []string  `json:"tags"`
	Networks struct {
		V4 []struct {
			Address string `json:"ip_address"`
			Type    string `json:"type"` // public, private
		} `json:"v4"`
	} `json:"networks"`
	Region struct {
		Slug string `json:"slug"`
	} `json:"region"`
}

// all is the tag of every droplet that Coopr creates.
const all = "coopr"

// tags returns the droplet's tags. Tags have no values here, so both are joined:
// "coopr-node:00000001-7".
func tags(t instance.Tags) []string {
	out := []string{all}
	for k, v := range t.EscapedMap() {
		out = append(out, k+":"+v)
	}
	return out
}

func (d *droplet) machine() (instance.Machine, bool) {
	m := map[string]string{}
	for _, t := range d.Tags {
		if k, v, ok := strings.Cut(t, ":"); ok {
			m[k] = v
		}
	}
	of, ours := instance.TagsOfEscaped(m)
	out := instance.Machine{ID: strconv.FormatInt(d.ID, 10), Name: d.Name, Tags: of, Zone: d.Region.Slug, Created: d.Created}
	switch d.Status {
	case "active":
		out.State = instance.Running
	case "off", "archive":
		out.State = instance.Stopped
	}
	for _, a := range d.Networks.V4 {
		switch a.Type {
		case "public":
			out.Public = cmp.Or(out.Public, a.Address)
		case "private":
			out.Private = cmp.Or(out.Private, a.Address)
		}
	}
	return out, ours
}

// perPage is the API's maximum.
const perPage = 200

// List returns the droplets with Coopr's tags. The API filters by one tag, so it is given the
// rarest one.
func (c *cloud) List(ctx context.Context, filter instance.Tags) ([]instance.Machine, error) {
	tag := all
	for _, x := range [][2]string{{instance.TagMesh, filter.Mesh}, {instance.TagCluster, filter.Cluster}, {instance.TagNode, filter.Node}} {
		if x[1] != "" {
			tag = x[0] + ":" + instance.Escape(x[1])
		}
	}
	var out []instance.Machine
	for page := 1; ; page++ {
		var answer struct {
			Droplets []droplet `json:"droplets"`
			Links    struct {
				Pages struct {
					Next string `json:"next"`
				} `json:"pages"`
			} `json:"links"`
		}
		err := c.api.Do(ctx, http.MethodGet, fmt.Sprintf("/v2/droplets?tag_name=%s&per_page=%d&page=%d", url.QueryEscape(tag), perPage, page),
			nil, &answer)
		if instance.KindOf(err) == instance.NotFound {
			return out, nil // no droplet has the tag yet
		}
		if err != nil {
			return nil, err
		}
		for _, d := range answer.Droplets {
			if m, ours := d.machine(); ours && m.Tags.Fits(filter) {
				out = append(out, m)
			}
		}
		if answer.Links.Pages.Next == "" {
			return out, nil
		}
	}
}

// Create requests a droplet.
func (c *cloud) Create(ctx context.Context, s *instance.Spec) (*instance.Machine, error) {
	if s.Flavor == "" {
		return nil, instance.Faultf(instance.Invalid, "the hardware type has no flavor (providermap: flavor), such as s-1vcpu-1gb")
	}
	var image any = s.Image // a slug, or the number of an image of the account
	if n, err := strconv.ParseInt(s.Image, 10, 64); err == nil {
		image = n
	}
	body := map[string]any{
		"name": s.Name, "region": cmp.Or(s.Zone, c.region), "size": s.Flavor, "image": image, "tags": tags(s.Tags),
		"user_data": string(s.UserData),
	}
	if c.vpc != "" {
		body["vpc_uuid"] = c.vpc
	}
	if len(c.keys) > 0 {
		body["ssh_keys"] = c.keys
	}
	var answer struct {
		Droplet droplet `json:"droplet"`
	}
	if err := c.api.Do(ctx, http.MethodPost, "/v2/droplets", body, &answer); err != nil {
		return nil, err
	}
	m, _ := answer.Droplet.machine()
	m.Tags = s.Tags
	return &m, nil
}

// Delete requests a droplet's deletion.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	return c.api.Do(ctx, http.MethodDelete, "/v2/droplets/"+url.PathEscape(m.ID), nil, nil)
}
