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

// Fields reads a provider's fields and gathers all that is wrong with them.
type Fields struct {
	Values map[string]any
	Faults model.Faults
}

// Text reads a text; missing or empty it is the fallback.
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

// Need reads a text that must be there.
func (f *Fields) Need(name string) string {
	v := f.Text(name, "")
	if v == "" && f.Values[name] == nil || f.Values[name] == "" {
		f.Faults.Add(name, "is missing")
	}
	return v
}

// OneOf reads a text among some; the first is the default.
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

// URL reads an address of an API.
func (f *Fields) URL(name, fallback string) string {
	v := f.Text(name, fallback)
	if u, err := url.Parse(v); v != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		f.Faults.Add(name, fmt.Sprintf("%q is not an address such as https://HOST/PATH", v))
	}
	return strings.TrimRight(v, "/")
}

// Number reads a whole number within bounds.
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

// Bool reads true or false, also as text.
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

// List reads a list of texts, or one text with commas.
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

// common are the fields that every provider of rented machines has.
type common struct {
	user, identity, dir string
	port                int
	private             bool // agents reach the machines' private addresses
	boot                string
	within              time.Duration // until somebody can log in; 0: as long as a task may take
}

func (f *Fields) common() *common {
	c := &common{
		user: f.Text("ssh_user", "root"), identity: f.Text("ssh_identityfile", ""), dir: f.Text("ssh_dir", ""),
		port:    f.Number("ssh_port", 22, 1, 65535),
		private: f.OneOf("address", "public", "private") == "private", boot: f.Text("boot_script", ""),
	}
	f.List("zones") // the leader's: it chooses one for each node
	if !userName.MatchString(c.user) {
		f.Faults.Add("ssh_user", fmt.Sprintf("%q cannot be a user's name", c.user))
	}
	if c.dir != "" && !sshDir.MatchString(c.dir) {
		f.Faults.Add("ssh_dir", fmt.Sprintf("%q is not an absolute path", c.dir))
	}
	if text := f.Text("ready_within", ""); text != "" {
		var err error
		if c.within, err = time.ParseDuration(text); err != nil || c.within <= 0 {
			f.Faults.Add("ready_within", fmt.Sprintf("%q is not a time such as 5m", text))
		}
	}
	if c.boot != "" {
		if why := sdk.CheckScript(c.boot); why != "" {
			f.Faults.Add("boot_script", why)
		}
	}
	return c
}

// commonFields are their descriptions.
func commonFields() map[string]model.FieldSchema {
	return map[string]model.FieldSchema{
		"ssh_user": {Label: "SSH user", Type: "text", Tip: "root, or a user with sudo; it is made where the image knows cloud-init",
			Default: "root"},
		"ssh_identityfile": {Label: "SSH key file", Type: "text",
			Tip: "Name of a private key in the key folders of the plugins' settings; empty: a key is made for each node"},
		"ssh_port": {Label: "SSH port", Type: "text", Default: "22"},
		"ssh_dir":  {Label: "Folder on machines", Type: "text"},
		"address": {Label: "Address", Type: "select", Options: []string{"public", "private"}, Default: "public",
			Tip: "Which of a machine's addresses agents reach; the only one where it has one"},
		"zones": {Label: "Zones", Type: "text",
			Tip: "Where machines may be, in the cloud's words, with commas: nodes are spread over them", Override: true},
		"ready_within": {Label: "Ready within", Type: "text",
			Tip: "How long a machine may take until it runs and lets agents in, such as 5m; empty: a quarter of an hour, three times"},
		"boot_script": {Label: "Script at first boot", Type: "text",
			Tip: "A script that begins with #!, or the name of a resource; run by cloud-init as root"},
	}
}
