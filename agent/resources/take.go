package resources

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

// ErrNoType says that no plugin takes a resource like that.
var ErrNoType = problem.New(problem.NotFound, "no such type of resources")

// typeOf finds what a plugin says of the type of a resource; ErrNoType: there is none.
func typeOf(known model.Lookup, k model.ResourceKey) (model.ResourceType, error) {
	kind := strings.TrimSuffix(string(k.Kind), "types") + " type"
	d, ok := known.Definition(k.Kind, k.Plugin)
	if !ok {
		near := ""
		if name := words.Nearest(k.Plugin, known.Names(k.Kind)); name != "" {
			near = fmt.Sprintf(" (did you mean %q?)", name)
		}
		return model.ResourceType{}, fmt.Errorf("%w: there is no %s %q%s: an agent has to offer it", ErrNoType, kind, k.Plugin, near)
	}
	t, _ := d.Value.(*model.PluginType)
	rt, ok := t.ResourceTypes[k.Type]
	switch names := slices.Sorted(maps.Keys(t.ResourceTypes)); {
	case ok:
		return rt, nil
	case len(names) == 0:
		return rt, fmt.Errorf("%w: %s %s takes no resources", ErrNoType, kind, k.Plugin)
	default:
		return rt, fmt.Errorf("%w: %s %s has no resource type %q: it has %s", ErrNoType, kind, k.Plugin, k.Type, strings.Join(names, ", "))
	}
}

// Take keeps what is uploaded as a version of a resource: at most so many bytes, with the
// checksum want where that is not "". It fails with ErrNoType, with ErrTooLarge, and with
// model.Faults for a name that cannot be, and for a content that is none of the resource's
// type or not what was promised.
func (b *Blobs) Take(content io.Reader, known model.Lookup, k model.ResourceKey, most int64, want string) (p model.ResourcePin, err error) {
	if why := model.CheckResourceName(k.Name); why != "" {
		return p, model.Faults{{Path: "name", Message: why}}
	}
	t, err := typeOf(known, k)
	if err != nil {
		return p, err
	}
	p = model.ResourcePin{ResourceKey: k, Format: t.Format, Permissions: t.Permissions, Secret: t.IsSecret()}
	p.SHA256, p.Size, err = b.Put(content, most, strings.ToLower(want))
	switch {
	case errors.Is(err, ErrTooLarge):
		return p, fmt.Errorf("%w: resource %s is larger than the %d bytes that are allowed: the agents' limits.resource says so", ErrTooLarge, k, most)
	case errors.Is(err, ErrOther):
		return p, model.Faults{{Path: "sha256", Message: err.Error()}}
	case err != nil || t.Format != "archive":
		return p, err
	}
	f, err := b.Open(p.SHA256)
	if err != nil {
		return p, err
	}
	defer f.Close()
	if err := Check(f); err != nil {
		return p, model.Faults{{Path: "content", Message: err.Error()}}
	}
	return p, nil
}
