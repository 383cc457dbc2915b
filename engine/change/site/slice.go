package site

import "github.com/coopr/coopr/engine/change/object"

// Slice returns the part of a document that is needed to run the objects of some hosts: these
// objects, those that they depend on, and those that depend on them, with only their
// dependencies on these objects. Compiled with its IDs, it results in the same objects on
// these hosts as the whole document.
func Slice(doc *Document, ids []object.ID, hosts map[string]bool) (*Document, []object.ID) {
	mine := map[string]bool{}
	for i := range doc.Objects {
		if hosts[doc.Objects[i].Host] {
			mine[doc.Objects[i].Name] = true
		}
	}
	needed := map[string]bool{}
	for i := range doc.Objects {
		o := &doc.Objects[i]
		if !mine[o.Name] {
			continue
		}
		for _, r := range o.Requires {
			needed[r.Object] = true
		}
		for _, h := range o.Holds {
			needed[h.Object] = true
		}
	}
	out := &Document{Name: doc.Name, CheckInterval: doc.CheckInterval}
	var numbers []object.ID
	for i := range doc.Objects {
		o := doc.Objects[i]
		if !mine[o.Name] {
			var requires []Requirement
			var holds []Holding
			for _, r := range o.Requires {
				if mine[r.Object] {
					requires = append(requires, r)
				}
			}
			for _, h := range o.Holds {
				if mine[h.Object] {
					holds = append(holds, h)
				}
			}
			if len(requires)+len(holds) == 0 && !needed[o.Name] {
				continue
			}
			o.Requires, o.Holds, o.Content, o.Actions = requires, holds, nil, nil
		}
		out.Objects = append(out.Objects, o)
		numbers = append(numbers, ids[i])
	}
	return out, numbers
}
