package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/instance/rest"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

// Version is the plugin's version.
const Version = "1.0.0"

const defaultEndpoint = "https://compute.googleapis.com/compute/v1"

// New returns the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "gcp", Label: "Google Compute Engine", Description: "Nodes are instances of Google Compute Engine"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"project": {Label: "Project", Type: "text", Tip: "Project id; default: that of the service account"},
				"zone":    {Label: "Zone", Type: "text", Tip: "Such as europe-west3-a; set zones for several"},
				"json_key": {Label: "Service account's key", Type: "password",
					Tip: "The JSON file that Google issues; default: the account of the agent's machine"},
				"network":        {Label: "Network", Type: "text", Default: "global/networks/default"},
				"subnetwork":     {Label: "Subnetwork", Type: "text", Tip: "Such as regions/europe-west3/subnetworks/nodes"},
				"public_address": {Label: "Public address", Type: "checkbox", Tip: "Assign a public address"},
				"network_tags":   {Label: "Network tags", Type: "text", Tip: "Comma-separated tags for firewall rules"},
				"disk_gb":        {Label: "Disk (GB)", Type: "text", Tip: "Default: the size of the image"},
				"endpoint":       {Label: "API", Type: "text", Default: defaultEndpoint},
			},
			Required: [][]string{{"zone"}},
		}},
	}})
}

// cloud is a project.
type cloud struct {
	api                       *rest.Client
	zone, network, subnetwork string
	public                    bool
	tags                      []string
	disk                      int
}

func open(f *instance.Fields) instance.Cloud {
	t := &tokens{guarded: &http.Client{Transport: f.Guard.Transport()}}
	project := f.Text("project", "")
	if key := f.Text("json_key", ""); key != "" {
		var err error
		if t.account, err = parseAccount(key); err != nil {
			f.Faults.Add("json_key", err.Error())
		} else {
			project = cmp.Or(project, t.account.ProjectID)
		}
	}
	if project == "" {
		f.Faults.Add("project", "is missing")
	}
	return &cloud{
		api: &rest.Client{Base: f.URL("endpoint", defaultEndpoint) + "/projects/" + url.PathEscape(project), Judge: judge, Sign: t.sign,
			HTTP: rest.NewHTTP(f.Guard)},
		zone: f.Need("zone"), network: f.Text("network", "global/networks/default"), subnetwork: f.Text("subnetwork", ""),
		public: f.Bool("public_address"),
		tags:   f.List("network_tags"), disk: f.Number("disk_gb", 0, 1, 65536),
	}
}

// judge reads the API's reason for a refusal.
func judge(_ int, body []byte) (string, instance.Kind) {
	var e struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	if json.Unmarshal(body, &e) != nil {
		return "", 0
	}
	reason := ""
	if len(e.Error.Errors) > 0 {
		reason = e.Error.Errors[0].Reason
	}
	return e.Error.Message, kindOf(reason)
}

// kindOf returns the kind of a refusal's reason or of an operation's error code.
func kindOf(reason string) instance.Kind {
	switch reason {
	case "quotaExceeded", "QUOTA_EXCEEDED", "LIMIT_EXCEEDED":
		return instance.Quota
	case "rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED":
		return instance.Throttled
	case "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "resourceNotReady", "IP_SPACE_EXHAUSTED":
		return instance.Capacity
	case "RESOURCE_NOT_FOUND", "INVALID_FIELD_VALUE", "INVALID_USAGE":
		return instance.Invalid
	case "RESOURCE_ALREADY_EXISTS", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE":
		return instance.Conflict
	case "PERMISSIONS_ERROR", "FORBIDDEN":
		return instance.Credentials
	}
	return 0
}

// vm is an instance in the API's form.
type vm struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Status  string            `json:"status"`
	Zone    string            `json:"zone"` // a URL that ends with the zone's name
	Created time.Time         `json:"creationTimestamp"`
	Labels  map[string]string `json:"labels"`
	Nets    []struct {
		IP     string `json:"networkIP"`
		Access []struct {
			IP string `json:"natIP"`
		} `json:"accessConfigs"`
	} `json:"networkInterfaces"`
}

func (v *vm) machine() (instance.Machine, bool) {
	of, ours := instance.TagsOfEscaped(v.Labels)
	out := instance.Machine{ID: v.ID, Name: v.Name, Tags: of, Zone: path.Base(v.Zone), Created: v.Created}
	switch v.Status {
	case "PROVISIONING", "STAGING", "REPAIRING", "":
	case "RUNNING":
		out.State = instance.Running
	default:
		out.State = instance.Stopped
	}
	for _, n := range v.Nets {
		out.Private = cmp.Or(out.Private, n.IP)
		for _, a := range n.Access {
			out.Public = cmp.Or(out.Public, a.IP)
		}
	}
	return out, ours
}

// List returns the instances of all zones with Coopr's labels.
func (c *cloud) List(ctx context.Context, filter instance.Tags) ([]instance.Machine, error) {
	var wants []string
	for k, v := range map[string]string{instance.TagMesh: filter.Mesh, instance.TagTenant: filter.Tenant, instance.TagCluster: filter.Cluster,
		instance.TagNode: filter.Node} {
		if v != "" {
			wants = append(wants, fmt.Sprintf("labels.%s=%q", k, instance.Escape(v)))
		}
	}
	if len(wants) == 0 {
		wants = []string{"labels." + instance.TagNode + ":*"}
	}
	var out []instance.Machine
	for page := ""; ; {
		var answer struct {
			Items map[string]struct {
				Instances []vm `json:"instances"`
			} `json:"items"`
			Next        string   `json:"nextPageToken"`
			Unreachable []string `json:"unreachables"`
		}
		q := url.Values{"filter": {strings.Join(wants, " AND ")}, "maxResults": {"500"}}
		if page != "" {
			q.Set("pageToken", page)
		}
		if err := c.api.Do(ctx, http.MethodGet, "/aggregated/instances?"+q.Encode(), nil, &answer); err != nil {
			return nil, err
		}
		if len(answer.Unreachable) > 0 {
			return nil, instance.Faultf(instance.Unclear, "zones cannot be reached: %s", strings.Join(answer.Unreachable, ", "))
		}
		for _, zone := range answer.Items {
			for i := range zone.Instances {
				if m, ours := zone.Instances[i].machine(); ours && m.Tags.Fits(filter) {
					out = append(out, m)
				}
			}
		}
		if page = answer.Next; page == "" {
			return out, nil
		}
	}
}

// operation is work that continues after the API's answer.
type operation struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Target string `json:"targetId"`
	Error  struct {
		Errors []struct{ Code, Message string }
	} `json:"error"`
}

// await waits for the end of an operation, which reports exhausted quota or capacity.
func (c *cloud) await(ctx context.Context, zone string, op *operation) error {
	for op.Status != "DONE" {
		if err := c.api.Do(ctx, http.MethodPost, fmt.Sprintf("/zones/%s/operations/%s/wait", url.PathEscape(zone), url.PathEscape(op.Name)), nil,
			op); err != nil {
			return err
		}
	}
	if e := op.Error.Errors; len(e) > 0 {
		return instance.Faultf(kindOf(e[0].Code), "%s: %s", e[0].Code, e[0].Message)
	}
	return nil
}

// uuid formats a token as a UUID, as requestId requires.
func uuid(token string) string {
	t := fmt.Sprintf("%-32s", token)
	return t[:8] + "-" + t[8:12] + "-4" + t[13:16] + "-8" + t[17:20] + "-" + t[20:32]
}

// Create requests an instance. Its name is unique within a zone.
func (c *cloud) Create(ctx context.Context, s *instance.Spec) (*instance.Machine, error) {
	if s.Flavor == "" {
		return nil, instance.Faultf(instance.Invalid, "the hardware type has no flavor (providermap: flavor), such as e2-small")
	}
	zone := cmp.Or(s.Zone, c.zone)
	disk := map[string]any{"sourceImage": s.Image}
	if c.disk > 0 {
		disk["diskSizeGb"] = fmt.Sprint(c.disk)
	}
	net := map[string]any{"network": c.network}
	if c.subnetwork != "" {
		net = map[string]any{"subnetwork": c.subnetwork}
	}
	if c.public {
		net["accessConfigs"] = []any{map[string]string{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}}
	}
	body := map[string]any{
		"name": s.Name, "machineType": fmt.Sprintf("zones/%s/machineTypes/%s", zone, s.Flavor), "labels": s.Tags.EscapedMap(),
		"disks":             []any{map[string]any{"boot": true, "autoDelete": true, "initializeParams": disk}},
		"networkInterfaces": []any{net}, "tags": map[string]any{"items": c.tags},
		"metadata": map[string]any{"items": []any{
			map[string]string{"key": "user-data", "value": string(s.UserData)},
			map[string]string{"key": "ssh-keys", "value": s.User + ":" + s.PublicKey},
			map[string]string{"key": "block-project-ssh-keys", "value": "true"},
		}},
	}
	var op operation
	if err := c.api.Do(ctx, http.MethodPost, fmt.Sprintf("/zones/%s/instances?requestId=%s", url.PathEscape(zone), uuid(s.Token)), body,
		&op); err != nil {
		return nil, err
	}
	if err := c.await(ctx, zone, &op); err != nil {
		return nil, err
	}
	return &instance.Machine{ID: op.Target, Name: s.Name, Tags: s.Tags, Zone: zone}, nil
}

// Delete requests an instance's deletion.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	return c.api.Do(ctx, http.MethodDelete, fmt.Sprintf("/zones/%s/instances/%s", url.PathEscape(m.Zone), url.PathEscape(m.Name)), nil, nil)
}
