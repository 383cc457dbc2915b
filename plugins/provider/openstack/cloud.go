package openstack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/coopr/coopr/plugins/provider/instance"
)

// session holds the clients of the services after a login.
type session struct {
	compute *gophercloud.ServiceClient
	// image and network are nil if the services are not used to resolve names.
	image, network *gophercloud.ServiceClient
}

// cloud is a project in a region.
type cloud struct {
	login    func(context.Context) (*session, error)
	networks []string // names or ids
	groups   []string
	keyName  string

	mu  sync.Mutex
	now *session
}

// session logs in, unless that was done before. The library renews expired tokens by itself.
func (c *cloud) session(ctx context.Context) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		return c.now, nil
	}
	s, err := c.login(ctx)
	if err != nil {
		return nil, fault(fmt.Errorf("log in: %w", err))
	}
	c.now = s
	return s, nil
}

// fault classifies the services' refusals.
func fault(err error) error {
	var code gophercloud.ErrUnexpectedResponseCode
	var endpoint *gophercloud.ErrEndpointNotFound
	var known *instance.Fault
	var login *gophercloud.ErrUnableToReauthenticate
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.As(err, &login): // the text of login would quote both answers
		return fault(login.ErrReauth)
	case errors.As(err, &endpoint):
		return &instance.Fault{Kind: instance.Invalid, Err: err}
	case !errors.As(err, &code):
		kind := instance.KindOf(err)
		if kind == instance.Other {
			kind = instance.Unclear
		}
		return &instance.Fault{Kind: kind, Err: err}
	}
	message := said(code.Body)
	kind := instance.KindOfStatus(code.Actual)
	lower := strings.ToLower(message)
	switch {
	case code.Actual == http.StatusForbidden && strings.Contains(lower, "quota"):
		kind = instance.Quota
	case code.Actual == http.StatusRequestEntityTooLarge:
		kind = instance.Throttled
		if strings.Contains(lower, "quota") {
			kind = instance.Quota
		}
	}
	return instance.Faultf(kind, "%s (HTTP %d)", cmp.Or(message, "no reason given"), code.Actual)
}

// said returns the message of a body such as {"badRequest": {"message": …}}, under any key.
func said(body []byte) string {
	var doc map[string]struct{ Message string }
	if json.Unmarshal(body, &doc) == nil {
		for _, d := range doc {
			if d.Message != "" {
				return d.Message
			}
		}
	}
	return ""
}

// address is one address of a server.
type address struct {
	Addr    string `json:"addr"`
	Version int    `json:"version"`
	Type    string `json:"OS-EXT-IPS:type"` // fixed, floating
}

// machine converts a server. It returns false if the server is being deleted or is not Coopr's.
func (c *cloud) machine(s *servers.Server, zone string) (instance.Machine, bool) {
	of, ours := instance.TagsOf(s.Metadata)
	out := instance.Machine{ID: s.ID, Name: s.Name, Tags: of, Public: s.AccessIPv4, Created: s.Created, Zone: zone, Fault: s.Fault.Message}
	switch s.Status {
	case "ACTIVE":
		out.State = instance.Running
	case "BUILD", "REBUILD", "REBOOT", "HARD_REBOOT", "":
	case "ERROR":
		out.State = instance.Failed
	case "DELETED", "SOFT_DELETED":
		return out, false
	default:
		out.State = instance.Stopped
	}
	names := make([]string, 0, len(s.Addresses))
	for n := range s.Addresses {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		// The first network of the field is the nodes' own.
		rank := func(n string) int {
			if i := slices.Index(c.networks, n); i >= 0 {
				return i
			}
			return len(c.networks)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b, a))
	})
	for _, n := range names {
		var list []address
		if b, err := json.Marshal(s.Addresses[n]); err != nil || json.Unmarshal(b, &list) != nil {
			continue
		}
		for _, a := range list {
			switch {
			case a.Version != 4:
			case a.Type == "floating" || n == "public":
				out.Public = cmp.Or(out.Public, a.Addr)
			default:
				out.Private = cmp.Or(out.Private, a.Addr)
			}
		}
	}
	return out, ours
}

// ofOurs matches the names of all servers that Coopr creates.
const ofOurs = "^coopr-"

// List returns the servers with Coopr's metadata.
func (c *cloud) List(ctx context.Context, filter instance.Tags) ([]instance.Machine, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := servers.List(s.compute, servers.ListOpts{Name: ofOurs}).AllPages(ctx)
	if err != nil {
		return nil, fault(err)
	}
	var found []struct {
		servers.Server
		Zone string `json:"OS-EXT-AZ:availability_zone"`
	}
	if err := servers.ExtractServersInto(pages, &found); err != nil {
		return nil, fault(err)
	}
	var out []instance.Machine
	for i := range found {
		m, ours := c.machine(&found[i].Server, found[i].Zone)
		if !ours || !m.Tags.Fits(filter) {
			continue
		}
		if m.State == instance.Failed && m.Fault == "" {
			// The reason of a failure is missing from lists.
			if one, err := servers.Get(ctx, s.compute, m.ID).Extract(); err == nil {
				m.Fault = one.Fault.Message
			}
		}
		out = append(out, m)
	}
	return out, nil
}

var isID = regexp.MustCompile(`^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$`)

// only returns the single id of a name.
func only(what, name string, ids []string) (string, error) {
	switch len(ids) {
	case 0:
		return "", instance.Faultf(instance.Invalid, "no %s is named %s", what, name)
	case 1:
		return ids[0], nil
	}
	return "", instance.Faultf(instance.Invalid, "%d %ss are named %s: use an id", len(ids), what, name)
}

// imageID, flavorID and networkID resolve names; ids are returned unchanged.
func (s *session) imageID(ctx context.Context, name string) (string, error) {
	if isID.MatchString(name) || s.image == nil {
		return name, nil
	}
	pages, err := images.List(s.image, images.ListOpts{Name: name}).AllPages(ctx)
	if err != nil {
		return "", fault(err)
	}
	all, err := images.ExtractImages(pages)
	if err != nil {
		return "", fault(err)
	}
	var ids []string
	for _, i := range all {
		if i.Name == name && i.Status == images.ImageStatusActive {
			ids = append(ids, i.ID)
		}
	}
	return only("image", name, ids)
}

func (s *session) flavorID(ctx context.Context, name string) (string, error) {
	pages, err := flavors.ListDetail(s.compute, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx)
	if gophercloud.ResponseCodeIs(err, http.StatusForbidden) || gophercloud.ResponseCodeIs(err, http.StatusBadRequest) {
		pages, err = flavors.ListDetail(s.compute, flavors.ListOpts{}).AllPages(ctx)
	}
	if err != nil {
		return "", fault(err)
	}
	all, err := flavors.ExtractFlavors(pages)
	if err != nil {
		return "", fault(err)
	}
	var ids []string
	for _, f := range all {
		if f.ID == name {
			return name, nil
		}
		if f.Name == name {
			ids = append(ids, f.ID)
		}
	}
	return only("flavor", name, ids)
}

func (s *session) networkID(ctx context.Context, name string) (string, error) {
	if isID.MatchString(name) || s.network == nil {
		return name, nil
	}
	pages, err := networks.List(s.network, networks.ListOpts{Name: name}).AllPages(ctx)
	if err != nil {
		return "", fault(err)
	}
	all, err := networks.ExtractNetworks(pages)
	if err != nil {
		return "", fault(err)
	}
	var ids []string
	for _, n := range all {
		ids = append(ids, n.ID)
	}
	return only("network", name, ids)
}

// Create requests a server.
func (c *cloud) Create(ctx context.Context, spec *instance.Spec) (*instance.Machine, error) {
	if spec.Flavor == "" {
		return nil, instance.Faultf(instance.Invalid, "the hardware type has no flavor (providermap: flavor)")
	}
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	drive := true
	opts := servers.CreateOpts{
		Name: spec.Name, Metadata: spec.Tags.Map(), UserData: spec.UserData, AvailabilityZone: spec.Zone, ConfigDrive: &drive,
		SecurityGroups: c.groups,
	}
	if opts.ImageRef, err = s.imageID(ctx, spec.Image); err != nil {
		return nil, err
	}
	if opts.FlavorRef, err = s.flavorID(ctx, spec.Flavor); err != nil {
		return nil, err
	}
	var nets []servers.Network
	for _, n := range c.networks {
		id, err := s.networkID(ctx, n)
		if err != nil {
			return nil, err
		}
		nets = append(nets, servers.Network{UUID: id})
	}
	if len(nets) > 0 {
		opts.Networks = nets
	}
	var body servers.CreateOptsBuilder = opts
	if c.keyName != "" {
		body = withKey{opts, c.keyName}
	}
	made, err := servers.Create(ctx, s.compute, body, nil).Extract()
	if err != nil {
		return nil, fault(err)
	}
	return &instance.Machine{ID: made.ID, Name: spec.Name, Tags: spec.Tags}, nil
}

// withKey adds a key pair of the account.
type withKey struct {
	servers.CreateOpts
	name string
}

func (w withKey) ToServerCreateMap() (map[string]any, error) {
	m, err := w.CreateOpts.ToServerCreateMap()
	if err == nil {
		m["server"].(map[string]any)["key_name"] = w.name
	}
	return m, err
}

// Delete requests a server's deletion.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	return fault(servers.Delete(ctx, s.compute, m.ID).ExtractErr())
}
