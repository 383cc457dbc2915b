package decode

import (
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// modernise converts the shapes of older Coopr files to the current ones (docs/spec/coopr.md
// 9.3, "Shape differences"), so that all other code handles one shape.
func (d *decoder) modernise(kind model.Kind, n *node) {
	switch kind {
	case model.KindProvider:
		// 0.9.6: the provider's values were under provisioner.auth.
		p := n.get("provisioner")
		if auth := p.get("auth"); auth != nil && auth.kind == objectNode && len(p.fields) == 1 {
			n.set("provisioner", p.line, auth)
		}
	case model.KindService:
		d.modernService(n)
	case model.KindClusterTemplate, model.KindPartialTemplate:
		d.modernPlans(n)
		services := n.get("constraints").get("services")
		if services == nil {
			return
		}
		for _, f := range services.fields {
			q := f.value.get("quantities")
			size := q.get("stepSize")
			if size == nil {
				continue
			}
			q.drop("stepSize")
			if q.get("step") != nil {
				d.fault(size, "constraints.services."+f.key+".quantities.stepSize", "is the old name of \"step\", which is given too: keep \"step\"")
				continue
			}
			q.set("step", size.line, size)
		}
	default:
	}
}

func (d *decoder) modernService(n *node) {
	// 0.9.6: one flat list of the services that must start before.
	if on := n.get("dependson"); on != nil {
		n.drop("dependson")
		if n.get("dependencies") != nil {
			d.fault(on, "dependson", "is the old form of \"dependencies\", which is given too: keep \"dependencies\"")
		} else {
			runtime := &node{kind: objectNode, line: on.line}
			runtime.set("requires", on.line, on)
			deps := &node{kind: objectNode, line: on.line}
			deps.set("runtime", on.line, runtime)
			n.set("dependencies", on.line, deps)
		}
	}
	// 0.9.6: an action's script and data were next to its type.
	actions := n.get("provisioner").get("actions")
	if actions == nil {
		return
	}
	for _, f := range actions.fields {
		a := f.value
		if a.get("fields") != nil {
			continue
		}
		script, data := a.get("script"), a.get("data")
		if script == nil && data == nil {
			continue
		}
		scriptKey, dataKey := "script", "args"
		if t := a.get("type"); t != nil && (t.text == "chef" || t.text == "chef-solo") {
			scriptKey, dataKey = "run_list", "json_attributes"
			t.text = "chef-solo"
		}
		fields := &node{kind: objectNode, line: a.line}
		if script != nil {
			fields.set(scriptKey, script.line, script)
		}
		if data != nil {
			fields.set(dataKey, data.line, data)
		}
		a.drop("script")
		a.drop("data")
		a.set("fields", a.line, fields)
	}
}

// modernPlans converts plans, phases and steps that are objects by name to lists.
func (d *decoder) modernPlans(n *node) {
	plans := n.get("plans")
	named(plans)
	for i, p := range items(plans) {
		phases := p.get("phases")
		named(phases)
		for k, ph := range items(phases) {
			at := fmt.Sprintf("plans[%d].phases[%d]", i, k)
			if pod := ph.get("pod"); pod != nil {
				ph.drop("pod")
				if ph.get("service") != nil {
					d.fault(pod, at+".pod", "is the DC/OS name of \"service\", which is given too: keep \"service\"")
				} else {
					ph.set("service", pod.line, pod)
				}
			}
			for s, item := range items(ph.get("steps")) {
				if item.kind != objectNode || item.get("node") != nil {
					continue
				}
				if len(item.fields) != 1 {
					d.fault(item, fmt.Sprintf("%s.steps[%d]", at, s),
						"Malformed step in phase: it must have one key, the number of a node or \"default\", but has %d", len(item.fields))
					item.fields = nil
				} else {
					f := item.fields[0]
					item.fields = nil
					item.set("node", f.line, &node{kind: textNode, line: f.line, text: f.key})
					item.set("tasks", f.line, f.value)
				}
			}
		}
	}
}

func items(n *node) []*node {
	if n == nil {
		return nil
	}
	return n.items
}

// named converts an object of named things to a list of things with names.
func named(n *node) {
	if n == nil || n.kind != objectNode {
		return
	}
	n.kind = listNode
	for _, f := range n.fields {
		item := f.value
		if item.kind == nullNode {
			item = &node{kind: objectNode, line: f.line}
		}
		if item.kind == objectNode && item.get("name") == nil {
			c := *item
			c.fields = slices.Clone(c.fields)
			c.set("name", f.line, &node{kind: textNode, line: f.line, text: f.key})
			item = &c
		}
		n.items = append(n.items, item)
	}
	n.fields = nil
}
