package site

import "github.com/coopr/coopr/engine/change/object"

// Slice returns the part of a document that the objects of some hosts need to run: themselves,
// those that they depend on, and those that depend on them, with no more of their dependencies
// than those on them. Compiled with its IDs it gives the objects of these hosts as the whole
// document does.
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
