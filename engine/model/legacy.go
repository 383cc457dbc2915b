package model

// modernise converts the shapes of older Coopr files to the current ones (docs/spec/coopr.md
// 9.3, "Shape differences"), so that all other code handles one shape.
func (d *decoder) modernise(kind Kind, n *node) {
	switch kind {
	case KindProvider:
		// 0.9.6: the provider's values were under provisioner.auth.
		p := n.get("provisioner")
		if auth := p.get("auth"); auth != nil && auth.kind == objectNode && len(p.fields) == 1 {
			n.set("provisioner", p.line, auth)
		}
	case KindService:
		d.modernService(n)
	case KindClusterTemplate, KindPartialTemplate:
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
				d.fault(size, "constraints.services."+f.key+".quantities.stepSize", "is the old name of \"step\", which stands here too: keep \"step\"")
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
			d.fault(on, "dependson", "is the old form of \"dependencies\", which stands here too: keep \"dependencies\"")
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
