package joyent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	gossh "golang.org/x/crypto/ssh"

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
		Base:   model.Base{Name: "joyent", Label: "Joyent Triton", Description: "Nodes are instances of Triton"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"joyent_username": {Label: "Account", Type: "text", Credential: true},
				"joyent_api_url":  {Label: "CloudAPI", Type: "text", Tip: "https://… of the data center's CloudAPI"},
				"joyent_key": {Label: "Private key", Type: "password",
					Tip: "RSA or ECDSA, without passphrase; the public key belongs to the account"},
				"networks": {Label: "Networks", Type: "text", Tip: "Comma-separated ids; default: the account's default networks"},
			},
			Required: [][]string{{"joyent_username", "joyent_api_url", "joyent_key"}},
		}},
	}})
}

// cloud is an account in a data center.
type cloud struct {
	api      *rest.Client
	networks []string
}

func open(f *instance.Fields) instance.Cloud {
	account := f.Need("joyent_username")
	f.Need("joyent_api_url")
	c := &cloud{networks: f.List("networks"), api: &rest.Client{Base: f.URL("joyent_api_url", "") + "/" + url.PathEscape(account),
		Judge: judge, HTTP: rest.NewHTTP(f.Guard)}}
	signer, err := ssh.ParseKey([]byte(f.Need("joyent_key")))
	if err != nil {
		f.Faults.Add("joyent_key", err.Error())
		return c
	}
	c.api.Sign = func(_ context.Context, r *http.Request) error { return sign(r, account, signer, time.Now()) }
	return c
}

// sign signs a request's date, as CloudAPI requires (draft-cavage-http-signatures).
func sign(r *http.Request, account string, signer gossh.Signer, now time.Time) error {
	date := now.UTC().Format(http.TimeFormat)
	algorithm, format := "rsa-sha256", gossh.KeyAlgoRSASHA256
	if t := signer.PublicKey().Type(); t != gossh.KeyAlgoRSA {
		algorithm, format = "ecdsa-sha256", t
	}
	multi, ok := signer.(gossh.AlgorithmSigner)
	if !ok {
		return instance.Faultf(instance.Credentials, "joyent_key: keys of type %s cannot sign requests", signer.PublicKey().Type())
	}
	s, err := multi.SignWithAlgorithm(rand.Reader, []byte("date: "+date), format)
	if err != nil {
		return &instance.Fault{Kind: instance.Credentials, Err: err}
	}
	r.Header.Set("Date", date)
	r.Header.Set("Accept-Version", "~8||~9")
	r.Header.Set("Authorization", fmt.Sprintf(`Signature keyId="/%s/keys/%s",algorithm="%s",signature="%s"`,
		account, gossh.FingerprintLegacyMD5(signer.PublicKey()), algorithm, base64.StdEncoding.EncodeToString(s.Blob)))
	return nil
}

// judge reads the API's reason for a refusal.
func judge(_ int, body []byte) (string, instance.Kind) {
	var e struct{ Code, Message string }
	if json.Unmarshal(body, &e) != nil || e.Code == "" {
		return "", 0
	}
	kind := instance.Kind(0)
	switch e.Code {
	case "InvalidCredentials", "NotAuthorized", "InvalidHeader", "InvalidSignature":
		kind = instance.Credentials
	case "QuotaExceeded":
		kind = instance.Quota
	case "RequestThrottled":
		kind = instance.Throttled
	case "InsufficientCapacity", "InsufficientServerCapacity":
		kind = instance.Capacity
	case "InvalidArgument", "MissingParameter", "ValidationError":
		kind = instance.Invalid
	case "ResourceNotFound":
		kind = instance.NotFound
	case "InvalidState", "InUseError":
		kind = instance.Conflict
	}
	return e.Code + ": " + e.Message, kind
}

// machine is an instance in the API's form.
type machine struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	State   string         `json:"state"`
	Created time.Time      `json:"created"`
	IPs     []string       `json:"ips"`
	Tags    map[string]any `json:"tags"`
}

func (m *machine) instance() (instance.Machine, bool) {
	values := map[string]string{}
	for k, v := range m.Tags {
		values[k] = fmt.Sprint(v)
	}
	of, ours := instance.TagsOfEscaped(values)
	out := instance.Machine{ID: m.ID, Name: m.Name, Tags: of, Created: m.Created}
	switch m.State {
	case "running":
		out.State = instance.Running
	case "failed", "incomplete":
		out.State, out.Fault = instance.Failed, "it is "+m.State
	case "stopping", "stopped", "offline":
		out.State = instance.Stopped
	case "deleted", "destroyed":
		return out, false
	}
	for _, ip := range m.IPs {
		a, err := netip.ParseAddr(ip)
		switch {
		case err != nil || !a.Is4():
		case a.IsPrivate():
			out.Private = cmp.Or(out.Private, ip)
		default:
			out.Public = cmp.Or(out.Public, ip)
		}
	}
	return out, ours
}

// perPage is the API's maximum.
const perPage = 1000

// List returns the instances with Coopr's tags.
func (c *cloud) List(ctx context.Context, filter instance.Tags) ([]instance.Machine, error) {
	q := url.Values{"limit": {fmt.Sprint(perPage)}}
	for k, v := range map[string]string{instance.TagMesh: filter.Mesh, instance.TagTenant: filter.Tenant, instance.TagCluster: filter.Cluster,
		instance.TagNode: filter.Node} {
		if v != "" {
			q.Set("tag."+k, mark(v))
		}
	}
	var out []instance.Machine
	for offset := 0; ; offset += perPage {
		q.Set("offset", fmt.Sprint(offset))
		var page []machine
		if err := c.api.Do(ctx, http.MethodGet, "/machines?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for i := range page {
			if m, ours := page[i].instance(); ours && m.Tags.Fits(filter) {
				out = append(out, m)
			}
		}
		if len(page) < perPage {
			return out, nil
		}
	}
}

// mark encodes a tag's value. The API converts values such as 7 or true; an escaped first character
// keeps them text.
func mark(s string) string {
	if s == "" {
		return s
	}
	return fmt.Sprintf("_%02x", s[0]) + instance.Escape(s[1:])
}

// Create requests an instance. Its name is unique within the account.
func (c *cloud) Create(ctx context.Context, s *instance.Spec) (*instance.Machine, error) {
	if s.Flavor == "" {
		return nil, instance.Faultf(instance.Invalid, "the hardware type has no flavor (providermap: flavor), such as g4-highcpu-1G")
	}
	body := map[string]any{
		"name": s.Name, "package": s.Flavor, "image": s.Image,
		"metadata.cloud-init:user-data": string(s.UserData), "metadata.root_authorized_keys": s.PublicKey,
	}
	for k, v := range s.Tags.Map() {
		body["tag."+k] = mark(v)
	}
	if len(c.networks) > 0 {
		body["networks"] = c.networks
	}
	var made machine
	if err := c.api.Do(ctx, http.MethodPost, "/machines", body, &made); err != nil {
		return nil, err
	}
	return &instance.Machine{ID: made.ID, Name: s.Name, Tags: s.Tags}, nil
}

// Delete requests an instance's deletion. Older data centers require that it is stopped first.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	err := c.api.Do(ctx, http.MethodDelete, "/machines/"+url.PathEscape(m.ID), nil, nil)
	if instance.KindOf(err) == instance.Conflict {
		return c.api.Do(ctx, http.MethodPost, "/machines/"+url.PathEscape(m.ID)+"?action=stop", nil, nil)
	}
	return err
}
