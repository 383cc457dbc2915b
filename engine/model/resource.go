package model

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// ResourceStatus is the status of a version of a plugin resource (docs/spec/coopr.md §2.5).
type ResourceStatus string

// The statuses of a version. Active and recalled versions are in force. A sync makes staged
// versions active and recalled ones inactive.
const (
	ResourceInactive ResourceStatus = "inactive"
	ResourceStaged   ResourceStatus = "staged"
	ResourceActive   ResourceStatus = "active"
	ResourceRecalled ResourceStatus = "recalled"
)

// Live reports whether plans that begin now use the version.
func (s ResourceStatus) Live() bool { return s == ResourceActive || s == ResourceRecalled }

// The orders for a version of a resource.
const (
	StageResource    = "stage"
	RecallResource   = "recall"
	ActivateResource = "activate" // stage and sync this resource alone
	DeleteResource   = "delete"
)

// The limits of a tenant's resources, in addition to the limit of bytes in the configuration.
const (
	MostResources        = 2000 // names
	MostResourceVersions = 100  // versions of one name
)

// ResourceKey identifies a resource within its tenant.
type ResourceKey struct {
	// Kind is KindProviderType or KindAutomatorType.
	Kind   Kind   `json:"kind" enum:"providertypes,automatortypes"`
	Plugin string `json:"plugin" doc:"Name of the provider type or automator type"`
	Type   string `json:"type" doc:"One of the type's resourceTypes"`
	Name   string `json:"name"`
}

// String returns the key as in the API's paths.
func (k ResourceKey) String() string {
	return strings.Join([]string{string(k.Kind), k.Plugin, k.Type, k.Name}, "/")
}

// Folder returns the path of the folder with the resources of the key's plugin type, below the folder of all resources of tasks.
func (k ResourceKey) Folder() string { return string(k.Kind) + "/" + k.Plugin }

// resourceName matches names that file systems and paths of URLs accept unchanged.
var resourceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// CheckResourceName returns the fault of a resource's name, or "".
func CheckResourceName(name string) string {
	if !resourceName.MatchString(name) {
		return fmt.Sprintf("%q must be 1 to 128 of letters, digits, '.', '_' and '-', and not begin with '.' or '-'", words.Shorten(name))
	}
	return ""
}

// ResourcePin is one version of a resource with everything that is needed to provide its
// content to a plugin. A pin never changes, and outlives the version that it was made from.
type ResourcePin struct {
	ResourceKey
	Version int `json:"version" doc:"Counts up with every upload"`
	// SHA256 is the hash of the content in hexadecimal. The API omits it if Secret is set.
	SHA256      string `json:"sha256,omitempty"`
	Size        int64  `json:"size" doc:"In bytes"`
	Format      string `json:"format" enum:"file,archive"`
	Permissions string `json:"permissions,omitempty" doc:"Octal, of a file"`
	Secret      bool   `json:"secret,omitempty" doc:"The content is never given back"`
}

// String returns the name of the version: "automatortypes/shell/scripts/deploy@3".
func (p ResourcePin) String() string { return p.ResourceKey.String() + "@" + strconv.Itoa(p.Version) }

// ResourceVersion is a version of a resource in the state.
type ResourceVersion struct {
	ResourcePin
	Status ResourceStatus `json:"status" enum:"inactive,staged,active,recalled"`
	Time   int64          `json:"time,omitempty" doc:"When it was uploaded, in Unix milliseconds"`
	Actor  string         `json:"actor,omitempty" doc:"Who uploaded it"`
}

// PluginResource is a resource with all its versions, the oldest first.
type PluginResource struct {
	Tenant string
	ResourceKey
	Last     int // the highest number so far
	Versions []ResourceVersion
}

// ResourceSet has the versions that were in force for a tenant at one time. An operation is
// planned with one set and keeps it.
type ResourceSet struct {
	Tenant string
	Number uint64 // grows; 0 means no resources
	Pins   []ResourcePin
}

// Of returns the pins of a plugin type.
func (s *ResourceSet) Of(kind Kind, plugin string) []ResourcePin {
	var out []ResourcePin
	for _, p := range s.Pins {
		if p.Kind == kind && p.Plugin == plugin {
			out = append(out, p)
		}
	}
	return out
}

// ErrNoResourceVersion means that there is no such version.
var ErrNoResourceVersion = errors.New("there is no such version")

// Clone returns a copy that may be changed.
func (r *PluginResource) Clone() *PluginResource {
	c := *r
	c.Versions = slices.Clone(r.Versions)
	return &c
}

// Add adds the next version, inactive, and returns its number.
func (r *PluginResource) Add(v ResourceVersion) int {
	r.Last++
	v.ResourceKey, v.Version, v.Status = r.ResourceKey, r.Last, ResourceInactive
	r.Versions = append(r.Versions, v)
	return r.Last
}

// Find returns a version, or nil.
func (r *PluginResource) Find(version int) *ResourceVersion {
	i := slices.IndexFunc(r.Versions, func(v ResourceVersion) bool { return v.Version == version })
	if i < 0 {
		return nil
	}
	return &r.Versions[i]
}

// Order applies an order to a version. It fails with ErrNoResourceVersion, or if a version is
// to be deleted that is in force or staged. An order that has been applied already changes
// nothing.
func (r *PluginResource) Order(order string, version int) error {
	v := r.Find(version)
	if v == nil {
		return fmt.Errorf("%w: resource %s has no version %d", ErrNoResourceVersion, r, version)
	}
	switch order {
	case StageResource:
		if v.Status.Live() {
			r.unstage()
			v.Status = ResourceActive
			return nil
		}
		r.unstage()
		for i := range r.Versions {
			if r.Versions[i].Status == ResourceActive {
				r.Versions[i].Status = ResourceRecalled
			}
		}
		v.Status = ResourceStaged
	case RecallResource:
		switch v.Status {
		case ResourceActive:
			v.Status = ResourceRecalled
		case ResourceStaged:
			v.Status = ResourceInactive
		}
	case ActivateResource:
		for i := range r.Versions {
			r.Versions[i].Status = ResourceInactive
		}
		v.Status = ResourceActive
	case DeleteResource:
		if v.Status != ResourceInactive {
			return fmt.Errorf("%s is %s, and only what is inactive can be deleted: recall it and sync first", v, v.Status)
		}
		r.Versions = slices.DeleteFunc(r.Versions, func(x ResourceVersion) bool { return x.Version == version })
	default:
		return fmt.Errorf("%q is not an order about a resource", order)
	}
	return nil
}

func (r *PluginResource) unstage() {
	for i := range r.Versions {
		if r.Versions[i].Status == ResourceStaged {
			r.Versions[i].Status = ResourceInactive
		}
	}
}

// Sync puts staged and recalled versions into effect, and reports whether anything changed.
func (r *PluginResource) Sync() (changed bool) {
	for i := range r.Versions {
		switch v := &r.Versions[i]; v.Status {
		case ResourceStaged:
			v.Status, changed = ResourceActive, true
		case ResourceRecalled:
			v.Status, changed = ResourceInactive, true
		}
	}
	return changed
}

// Live returns the version in force, or nil.
func (r *PluginResource) Live() *ResourceVersion {
	i := slices.IndexFunc(r.Versions, func(v ResourceVersion) bool { return v.Status.Live() })
	if i < 0 {
		return nil
	}
	return &r.Versions[i]
}

// IsSecret reports whether the API never returns contents of the type: if the type is marked as
// secret, or if only the owner of its files may read them, as with keys.
func (t ResourceType) IsSecret() bool {
	if t.Secret {
		return true
	}
	mode, err := strconv.ParseUint(t.Permissions, 8, 12)
	return t.Format == "file" && err == nil && mode != 0 && mode&0o077 == 0
}
