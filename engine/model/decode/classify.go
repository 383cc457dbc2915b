package decode

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// Classify returns the definitions in a file. It recognizes the kind of each by a "kind" key,
// by the file's folder (clustertemplates/, services/, …), or by its shape. A file may contain
// several: YAML documents, a list, an export ({"providers":[…],…}, docs/spec/coopr.md 2.2), or
// a plugin's descriptor with its types (docs/spec/coopr.md 6.4). A recorded task is returned
// as KindTaskSample.
//
// The error is of type Faults, with the file as subject. The definitions without faults are
// returned along with it.
func Classify(file string, data []byte) ([]model.Definition, error) {
	ext := strings.ToLower(path.Ext(file))
	docs, faults := parse(data, ext == ".yaml" || ext == ".yml")
	c := classifier{folder: kindOfFolder(file)}
	c.faults = faults
	for i, n := range docs {
		at := ""
		if len(docs) > 1 {
			at = fmt.Sprintf("document %d", i+1)
		}
		c.document(n, at)
	}
	for i := range c.defs {
		c.defs[i].Source = file
	}
	return c.defs, c.faults.Limited().About(file).Err()
}

// kindOfFolder returns the kind that the innermost folder with the name of a kind stands for.
func kindOfFolder(file string) model.Kind {
	parts := strings.Split(strings.ReplaceAll(file, "\\", "/"), "/")
	for i := len(parts) - 2; i >= 0; i-- {
		if slices.Contains(model.Kinds, model.Kind(parts[i])) {
			return model.Kind(parts[i])
		}
	}
	return ""
}

type classifier struct {
	folder model.Kind
	defs   []model.Definition
	faults model.Faults
}

func (c *classifier) document(n *node, at string) {
	switch n.kind {
	case listNode:
		for i, item := range n.items {
			c.document(item, fmt.Sprintf("%s[%d]", at, i))
		}
		return
	case objectNode:
	default:
		c.fault(n, at, "must be an object, but is %s", n.is())
		return
	}
	if k := n.get("kind"); k != nil {
		kind, err := model.ParseKind(k.text)
		if err != nil {
			c.fault(k, join(at, "kind"), "%v", err)
			return
		}
		n.set("kind", k.line, &node{kind: textNode, line: k.line, text: string(kind)})
		c.add(kind, n, at)
		return
	}
	switch {
	case isExport(n):
		for _, f := range n.fields {
			for i, item := range f.value.items {
				c.add(model.Kind(f.key), item, fmt.Sprintf("%s[%d]", join(at, f.key), i))
			}
		}
	case n.get("taskId") != nil && n.get("taskName") != nil:
		c.defs = append(c.defs, model.Definition{Kind: model.KindTaskSample, Name: n.get("taskId").text, Line: n.line})
	case isDescriptor(n):
		c.descriptor(n, at)
	case c.folder != "":
		c.add(c.folder, n, at)
	default:
		kind, why := kindOfShape(n)
		if kind == "" {
			c.fault(n, at, "%s", why)
			return
		}
		c.add(kind, n, at)
	}
}

func (c *classifier) fault(n *node, at, format string, args ...any) {
	c.faults = append(c.faults, &model.Fault{Path: at, Line: n.line, Message: fmt.Sprintf(format, args...)})
}

func (c *classifier) add(kind model.Kind, n *node, at string) {
	def, faults := decodeNode(kind, n)
	for _, f := range faults {
		switch {
		case at == "":
		case f.Path == "":
			f.Path = at
		default:
			f.Path = at + "." + f.Path
		}
	}
	c.faults = append(c.faults, faults...)
	if len(faults) == 0 {
		c.defs = append(c.defs, def)
	}
}

// isExport reports whether every key is a kind whose value is a list or null.
func isExport(n *node) bool {
	for _, f := range n.fields {
		if !slices.Contains(model.Kinds, model.Kind(f.key)) || f.value.kind != listNode && f.value.kind != nullNode {
			return false
		}
	}
	return len(n.fields) > 0
}

func isDescriptor(n *node) bool {
	for _, key := range []string{string(model.KindProviderType), string(model.KindAutomatorType)} {
		if list := n.get(key); list != nil && list.kind == listNode {
			return true
		}
	}
	return false
}

// descriptor reads a plugin's descriptor. The lists "providertypes" and "automatortypes" have the
// names of its types, and each type is the value of the key with its name.
func (c *classifier) descriptor(n *node, at string) {
	known := []string{"name", "description", string(model.KindProviderType), string(model.KindAutomatorType)}
	for _, kind := range []model.Kind{model.KindProviderType, model.KindAutomatorType} {
		list := n.get(string(kind))
		if list == nil {
			continue
		}
		for i, item := range list.items {
			here := fmt.Sprintf("%s[%d]", join(at, string(kind)), i)
			if item.kind != textNode {
				c.fault(item, here, "must be the name of a type, but is %s", item.is())
				continue
			}
			known = append(known, item.text)
			body := n.get(item.text)
			if body == nil {
				c.fault(item, here, "names the type %q, but the file has no key %q that describes it", item.text, item.text)
				continue
			}
			c.add(kind, body, join(at, item.text))
		}
	}
	for _, f := range n.fields {
		if !slices.Contains(known, f.key) {
			c.faults = append(c.faults, &model.Fault{Path: join(at, f.key), Line: f.line,
				Message: "unknown key: a descriptor has name, description, providertypes, automatortypes and the types that these name" +
					words.DidYouMean(f.key, known)})
		}
	}
}

// kindOfShape returns the kind of a definition by keys that only that kind has.
func kindOfShape(n *node) (model.Kind, string) {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return n.get(k) != nil })
	}
	switch {
	case has("providertype"):
		return model.KindProvider, ""
	case has("providermap"):
		hardware, image := false, false
		for _, f := range n.get("providermap").fields {
			hardware = hardware || f.value.get("flavor") != nil
			image = image || f.value.get("image") != nil
		}
		if hardware != image {
			if hardware {
				return model.KindHardwareType, ""
			}
			return model.KindImageType, ""
		}
		return "", `this has a providermap with both or neither of "flavor" and "image", so it may be a hardware type or an image type: ` +
			`add kind: hardwaretypes or kind: imagetypes`
	case has("immutable"):
		return model.KindPartialTemplate, ""
	case has("defaults", "compatibility", "constraints", "administration", "extends", "includes"):
		return model.KindClusterTemplate, ""
	case has("dependencies", "dependson") || n.get("provisioner").get("actions") != nil:
		return model.KindService, ""
	case has("text"):
		return model.KindPolicies, ""
	case has("parameters"):
		if strings.Contains(n.get("classname").content(), "Automator") {
			return model.KindAutomatorType, ""
		}
		if strings.Contains(n.get("classname").content(), "Provider") {
			return model.KindProviderType, ""
		}
		return "", "this describes a plugin, but not which sort: add kind: providertypes or kind: automatortypes"
	}
	return "", "the kind of this definition does not follow from its keys: add a key \"kind\" with one of " + model.KindNames() +
		", or put the file into a folder of that name"
}

// content returns the text of a text node, and "" for any other node or nil.
func (n *node) content() string {
	if n == nil {
		return ""
	}
	return n.text
}
