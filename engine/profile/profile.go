package profile

import (
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// The scopes of profiles, as they precede the name: "SYSTEM:small".
const (
	User   = "USER"
	System = "SYSTEM"
)

// Native is the name of the system profile that always exists, and of its provisioner.
const Native = "native"

// Ref is the name of a profile. In JSON and in preferences it is a text such as
// "SYSTEM:small". Without a scope it is one of the tenant's own.
type Ref struct {
	Scope string
	Name  string
}

// NativeRef is the profile of a run that names none (docs/spec/profiles.md §7).
var NativeRef = Ref{System, Native}

// ParseRef parses a profile's name with or without its scope.
func ParseRef(s string) (Ref, error) {
	scope, name, ok := strings.Cut(s, ":")
	if !ok {
		scope, name = User, s
		if s == Native {
			scope = System
		}
	}
	if scope = strings.ToUpper(scope); scope != User && scope != System {
		return Ref{}, fmt.Errorf("%q is not a scope of profiles: write %s:%s or %s:%s", scope, User, name, System, name)
	}
	if why := model.CheckName(name); why != "" {
		return Ref{}, fmt.Errorf("the profile's name %s", why)
	}
	return Ref{scope, name}, nil
}

// String returns "SCOPE:name".
func (r Ref) String() string { return r.Scope + ":" + r.Name }

// Tenant returns the tenant that owns the profile, or "" for the system.
func (r Ref) Tenant(tenant string) string {
	if r.Scope == System {
		return ""
	}
	return tenant
}

// RefOf returns the reference to a profile of a tenant, or of the system if tenant is "".
func RefOf(tenant, name string) Ref {
	if tenant == "" {
		return Ref{Scope: System, Name: name}
	}
	return Ref{Scope: User, Name: name}
}

// Property is one setting of a provisioner.
type Property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Editable is false if preferences and arguments must not override the property; nil means
	// true.
	Editable *bool `json:"editable,omitempty"`
	// IsEditable is CDAP's name for Editable. It is read, but never written.
	IsEditable *bool `json:"isEditable,omitempty"`
	// Range bounds the value if it is a number; nil: no bounds.
	Range *Range `json:"range,omitempty"`
}

// Locked reports whether the property cannot be overridden.
func (p Property) Locked() bool { return p.Editable != nil && !*p.Editable }

// Provisioner names the provisioner that makes a profile's clusters, and its properties.
type Provisioner struct {
	Name       string     `json:"name"`
	Properties []Property `json:"properties,omitempty"`
}

// KeepAlive is how long nodes are kept after the program has failed or been stopped, in
// milliseconds; 0: they are torn down at once. After success they always are.
type KeepAlive struct {
	Failed model.Millis `json:"failed,omitempty"`
	Killed model.Millis `json:"killed,omitempty"`
}

// Limits bound the runs of a profile; nil and -1 mean no limit.
type Limits struct {
	// Runs limits the runs whose nodes may be up, Launching those that are being provisioned.
	Runs      *int `json:"runs,omitempty"`
	Launching *int `json:"launching,omitempty"`
}

// The time limits of a profile that does not set any.
const (
	DefaultTimeout     = model.Millis(5 * 60_000)
	DefaultDeprovision = model.Millis(60 * 60_000)
)

// Profile defines how the cluster of a run is made.
type Profile struct {
	Name        string      `json:"name"`
	Label       string      `json:"label,omitempty"`
	Description string      `json:"description,omitempty"`
	Provisioner Provisioner `json:"provisioner"`
	KeepAlive   KeepAlive   `json:"keepalive,omitzero"`
	// Timeout bounds provisioning from the first request on, including retries; default 5
	// minutes.
	Timeout model.Millis `json:"timeout,omitempty"`
	// DeprovisionTimeout bounds tearing down. After it the cluster is an orphan. Default one
	// hour.
	DeprovisionTimeout model.Millis `json:"deprovisionTimeout,omitempty"`
	// Retries bounds the failures in a row that are tried again; 0: only the timeout does.
	Retries int    `json:"retries,omitempty"`
	Limits  Limits `json:"limits,omitzero"`

	// The state sets the following fields.
	Scope   string `json:"scope,omitempty"`
	Status  string `json:"status,omitempty"`
	Created int64  `json:"created,omitempty"` // Unix seconds
	Version uint64 `json:"version,omitempty"`
}

// The statuses of a profile.
const (
	Enabled  = "ENABLED"
	Disabled = "DISABLED"
)

// NativeProfile returns the profile that cannot be changed or deleted.
func NativeProfile() Profile {
	return Profile{
		Name: Native, Label: "Native", Description: "Runs programs on the agents themselves, in work folders of their own",
		Provisioner: Provisioner{Name: Native}, Scope: System, Status: Enabled,
	}
}

// Ref returns the name of the profile.
func (p *Profile) Ref() Ref { return Ref{p.Scope, p.Name} }

// Check returns the faults of a profile. The argument spec is that of its provisioner, nil if
// no agent offers it.
func (p *Profile) Check(spec *Spec, known []string) model.Faults {
	var fs model.Faults
	if why := model.CheckName(p.Name); why != "" {
		fs.Add("name", why)
	}
	switch {
	case p.Provisioner.Name == "":
		fs.Add("provisioner.name", "is missing: it must be one of "+strings.Join(known, ", "))
	case spec == nil:
		hint := ""
		if near := words.Nearest(p.Provisioner.Name, known); near != "" {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
		fs.Add("provisioner.name", fmt.Sprintf("there is no provisioner %q%s", p.Provisioner.Name, hint))
	}
	seen := map[string]bool{}
	for i, q := range p.Provisioner.Properties {
		at := fmt.Sprintf("provisioner.properties[%d]", i)
		switch {
		case q.Name == "":
			fs.Add(at+".name", "is missing")
		case seen[q.Name]:
			fs.Add(at+".name", fmt.Sprintf("%q occurs twice", q.Name))
		case model.HasSealedRef(q.Value):
			fs.Add(at+".value", model.RefusedRef(q.Value))
		case spec != nil && !spec.Reads(q.Name):
			fs.Add(at+".name", fmt.Sprintf("provisioner %s has no property %q%s", spec.Name, q.Name, words.DidYouMean(q.Name, spec.names())))
		case spec != nil:
			if why := spec.Judge(q.Name, q.Value); why != "" {
				fs.Add(at+".value", why)
			}
		}
		seen[q.Name] = true
		if r := q.Range; r != nil {
			if why := r.fault(); why != "" {
				fs.Add(at+".range", why)
			} else if why := r.judge(q.Value); why != "" {
				fs.Add(at+".value", why+": a property with a range needs a number that is in it")
			}
		}
	}
	for path, n := range map[string]model.Millis{
		"keepalive.failed": p.KeepAlive.Failed, "keepalive.killed": p.KeepAlive.Killed,
		"timeout": p.Timeout, "deprovisionTimeout": p.DeprovisionTimeout,
	} {
		if n < 0 {
			fs.Add(path, "must not be negative")
		}
	}
	if p.Retries < 0 {
		fs.Add("retries", "must not be negative")
	}
	for path, n := range map[string]*int{"limits.runs": p.Limits.Runs, "limits.launching": p.Limits.Launching} {
		if n != nil && *n < -1 {
			fs.Add(path, "must be -1 (no bound), 0 or more")
		}
	}
	sortFaults(fs)
	return fs
}

// Clean drops entries without a name and value, such as the original's null entries
// (docs/spec/profiles.md §5), and unifies alternative spellings.
func (p *Profile) Clean() {
	var keep []Property
	for _, q := range p.Provisioner.Properties {
		if q.Editable == nil {
			q.Editable = q.IsEditable
		}
		if q.IsEditable = nil; q != (Property{}) {
			keep = append(keep, q)
		}
	}
	p.Provisioner.Properties = keep
}
