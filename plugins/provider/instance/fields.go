package instance

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
)

// Fields decodes a provider's fields and collects their faults.
type Fields struct {
	Values map[string]any
	Faults model.Faults
	// Guard decides which addresses requests to the cloud may reach; nil: any.
	Guard *Guard
}

// Text decodes a text; fallback replaces a missing or empty one.
func (f *Fields) Text(name, fallback string) string {
	switch v := f.Values[name].(type) {
	case nil:
	case string:
		if v = strings.TrimSpace(v); v != "" {
			return v
		}
	default:
		f.Faults.Add(name, "must be text")
	}
	return fallback
}

// Need decodes a required text.
func (f *Fields) Need(name string) string {
	v := f.Text(name, "")
	if v == "" && f.Values[name] == nil || f.Values[name] == "" {
		f.Faults.Add(name, "is missing")
	}
	return v
}

// OneOf decodes a text that must be one of options; the first is the default.
func (f *Fields) OneOf(name string, options ...string) string {
	v := f.Text(name, options[0])
	for _, o := range options {
		if v == o {
			return v
		}
	}
	f.Faults.Add(name, fmt.Sprintf("%q is not one of %s", v, strings.Join(options, ", ")))
	return options[0]
}

// URL decodes the address of an API.
func (f *Fields) URL(name, fallback string) string {
	v := f.Text(name, fallback)
	if u, err := url.Parse(v); v != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		f.Faults.Add(name, fmt.Sprintf("%q is not a URL such as https://HOST/PATH", v))
	}
	return strings.TrimRight(v, "/")
}

// Number decodes a whole number within bounds.
func (f *Fields) Number(name string, fallback, low, high int) int {
	text := ""
	switch v := f.Values[name].(type) {
	case nil:
		return fallback
	case string:
		if text = strings.TrimSpace(v); text == "" {
			return fallback
		}
	case float64, int, json.Number:
		text = fmt.Sprint(v)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		f.Faults.Add(name, fmt.Sprintf("must be a whole number from %d to %d", low, high))
		return fallback
	}
	return n
}

// Bool decodes true or false, also as text.
func (f *Fields) Bool(name string) bool {
	switch v := f.Values[name].(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		if b, err := strconv.ParseBool(v); err == nil || v == "" {
			return b
		}
	}
	f.Faults.Add(name, "must be true or false")
	return false
}

// List decodes a list of texts, or a text with commas.
func (f *Fields) List(name string) []string {
	var out []string
	switch v := f.Values[name].(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	case []any:
		for _, x := range v {
			s, ok := x.(string)
			if !ok || strings.TrimSpace(s) == "" {
				f.Faults.Add(name, "must be a list of texts")
				return nil
			}
			out = append(out, strings.TrimSpace(s))
		}
	default:
		f.Faults.Add(name, "must be a list of texts")
	}
	return out
}

var (
	userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	sshDir   = regexp.MustCompile(`^/[A-Za-z0-9/_.-]*$`)
)

// common holds the fields that every provider of rented machines has.
type common struct {
	user, identity, dir string
	port                int
	private             bool // agents use the machines' private addresses
	boot                string
	within              time.Duration // until login is possible; 0: limited by the task alone
}

func (f *Fields) common() *common {
	c := &common{
		user: f.Text("ssh_user", "root"), identity: f.Text("ssh_identityfile", ""), dir: f.Text("ssh_dir", ""),
		port:    f.Number("ssh_port", 22, 1, 65535),
		private: f.OneOf("address", "public", "private") == "private", boot: f.Text("boot_script", ""),
	}
	f.List("zones") // read by the leader, which chooses a zone for each node
	if !userName.MatchString(c.user) {
		f.Faults.Add("ssh_user", fmt.Sprintf("%q is not a valid user name", c.user))
	}
	if c.dir != "" && !sshDir.MatchString(c.dir) {
		f.Faults.Add("ssh_dir", fmt.Sprintf("%q is not an absolute path", c.dir))
	}
	if text := f.Text("ready_within", ""); text != "" {
		var err error
		if c.within, err = time.ParseDuration(text); err != nil || c.within <= 0 {
			f.Faults.Add("ready_within", fmt.Sprintf("%q is not a duration such as 5m", text))
		}
	}
	if c.boot != "" {
		if why := sdk.CheckScript(c.boot); why != "" {
			f.Faults.Add("boot_script", why)
		}
	}
	return c
}

// commonFields returns the descriptions of the common fields.
func commonFields() map[string]model.FieldSchema {
	return map[string]model.FieldSchema{
		"ssh_user": {Label: "SSH user", Type: "text", Tip: "root, or a user with sudo, which cloud-init creates",
			Default: "root"},
		"ssh_identityfile": {Label: "SSH key file", Type: "text",
			Tip: "Name of a private key in the key folders of the plugins' settings; default: each node gets a key of its own"},
		"ssh_port": {Label: "SSH port", Type: "text", Default: "22"},
		"ssh_dir":  {Label: "Folder on machines", Type: "text"},
		"address": {Label: "Address", Type: "select", Options: []string{"public", "private"}, Default: "public",
			Tip: "Which address of a machine agents use, if it has both"},
		"zones": {Label: "Zones", Type: "text",
			Tip: "Comma-separated zones, in the cloud's terms, over which nodes are spread", Override: true},
		"ready_within": {Label: "Ready within", Type: "text",
			Tip: "How long a machine may take until agents can log in, such as 5m; default: a quarter of an hour, three times"},
		"boot_script": {Label: "Script at first boot", Type: "text",
			Tip: "A script that begins with #!, or the name of a resource; cloud-init runs it as root"},
	}
}
