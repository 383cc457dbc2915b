package blobs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/words"
)

// ErrUnknownType is returned for a resource whose type no plugin declares.
var ErrUnknownType = problem.New(problem.NotFound, "no such type of resources")

// resourceType returns what a plugin declares about the type of a resource.
func resourceType(known model.Lookup, k model.ResourceKey) (model.ResourceType, error) {
	kind := strings.TrimSuffix(string(k.Kind), "types") + " type"
	d, ok := known.Definition(k.Kind, k.Plugin)
	if !ok {
		near := ""
		if name := words.Nearest(k.Plugin, known.Names(k.Kind)); name != "" {
			near = fmt.Sprintf(" (did you mean %q?)", name)
		}
		return model.ResourceType{}, fmt.Errorf("%w: there is no %s %q%s: an agent has to offer it", ErrUnknownType, kind, k.Plugin, near)
	}
	t, _ := d.Value.(*model.PluginType)
	rt, ok := t.ResourceTypes[k.Type]
	switch names := slices.Sorted(maps.Keys(t.ResourceTypes)); {
	case ok:
		return rt, nil
	case len(names) == 0:
		return rt, fmt.Errorf("%w: %s %s takes no resources", ErrUnknownType, kind, k.Plugin)
	default:
		return rt, fmt.Errorf("%w: %s %s has no resource type %q: it has %s", ErrUnknownType, kind, k.Plugin, k.Type, strings.Join(names, ", "))
	}
}

// Upload stores the content of a new version of a resource: at most limit bytes,
// with the checksum want unless that is "". It fails with ErrUnknownType, with
// ErrTooLarge, or with model.Faults for an invalid name, for a content that is not
// of the resource's type, and for another checksum.
func (s *Store) Upload(content io.Reader, known model.Lookup, k model.ResourceKey, limit int64, want string) (p model.ResourcePin,
	err error) {
	if why := model.CheckResourceName(k.Name); why != "" {
		return p, model.Faults{{Path: "name", Message: why}}
	}
	t, err := resourceType(known, k)
	if err != nil {
		return p, err
	}
	p = model.ResourcePin{ResourceKey: k, Format: t.Format, Permissions: t.Permissions, Secret: t.IsSecret()}
	p.SHA256, p.Size, err = s.Put(content, limit, strings.ToLower(want))
	switch {
	case errors.Is(err, ErrTooLarge):
		return p, fmt.Errorf("%w: resource %s is larger than %d bytes, the setting limits.resource of the agents", ErrTooLarge, k, limit)
	case errors.Is(err, ErrChecksum):
		return p, model.Faults{{Path: "sha256", Message: err.Error()}}
	case err != nil || t.Format != "archive":
		return p, err
	}
	f, err := s.Open(p.SHA256)
	if err != nil {
		return p, err
	}
	defer f.Close()
	if err := Check(f); err != nil {
		return p, model.Faults{{Path: "content", Message: err.Error()}}
	}
	return p, nil
}
