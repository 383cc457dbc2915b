package tree

import (
	"fmt"
	"strings"
)

// node is a line of a text tree, with the lines below it.
type node struct {
	text  string
	below []node
}

// draw formats the tree below a root, without a newline at the end.
func (n node) draw() string {
	var b strings.Builder
	b.WriteString(n.text)
	var walk func(below []node, indent string)
	walk = func(below []node, indent string) {
		for i, c := range below {
			elbow, next := "├─ ", "│  "
			if i == len(below)-1 {
				elbow, next = "└─ ", "   "
			}
			b.WriteString("\n" + indent + elbow + c.text)
			walk(c.below, indent+next)
		}
	}
	walk(n.below, "")
	return b.String()
}

func orUnknown(s string) string {
	if s == "" {
		return "<UNKNOWN>"
	}
	return s
}

// Text formats a plan for people (docs/spec/plans.md §6), without a newline at the end. The
// caller passes the plan's name, which the API does not repeat.
func (i *Info) Text(name string) string {
	parent := func(name, strategy, status string) string {
		return fmt.Sprintf("%s (%s strategy) (%s)", orUnknown(name), orUnknown(strategy), orUnknown(status))
	}
	root := node{text: parent(name, i.Strategy, i.Status)}
	for _, p := range i.Phases {
		n := node{text: parent(p.Name, p.Strategy, p.Status)}
		for _, s := range p.Steps {
			n.below = append(n.below, node{text: fmt.Sprintf("%s (%s)", orUnknown(s.Name), orUnknown(s.Status))})
		}
		root.below = append(root.below, n)
	}
	out := root.draw()
	if len(i.Errors) > 0 {
		out += "\n\nErrors:"
		for _, e := range i.Errors {
			out += "\n- " + e
		}
	}
	return out
}

// Pods are a service's pods in the API (docs/spec/plans.md §9).
type Pods struct {
	Service string    `json:"service"`
	Pods    []PodType `json:"pods"`
}

// PodType are the instances of one type of pod.
type PodType struct {
	Name      string `json:"name"`
	Instances []Pod  `json:"instances"`
}

// Pod is one instance.
type Pod struct {
	Name  string    `json:"name"`
	Tasks []PodTask `json:"tasks"`
}

// PodTask is one task of a pod. It has no status before it is started.
type PodTask struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status,omitempty"`
}

func (p Pod) node() node {
	n := node{text: orUnknown(p.Name)}
	for _, t := range p.Tasks {
		n.below = append(n.below, node{text: fmt.Sprintf("%s (%s)", orUnknown(t.Name), orUnknown(t.Status))})
	}
	return n
}

// Text formats one pod.
func (p Pod) Text() string { return p.node().draw() }

// Text formats a service's pods.
func (p Pods) Text() string {
	root := node{text: orUnknown(p.Service)}
	for _, t := range p.Pods {
		n := node{text: orUnknown(t.Name)}
		for _, i := range t.Instances {
			n.below = append(n.below, i.node())
		}
		root.below = append(root.below, n)
	}
	return root.draw()
}

// Told returns the CLI's message about an order: what it did or, if done is false, what it
// could not do: `"deploy" plan: phase "hello" has been paused.` The argument what is "paused",
// "resumed", "restarted" or "forced to complete". The arguments phase and step may be "".
func Told(what, plan, phase, step string, done bool) string {
	subject := fmt.Sprintf("%q plan", plan)
	switch {
	case step != "":
		subject += fmt.Sprintf(": step %q in phase %q", step, phase)
	case phase != "":
		subject += fmt.Sprintf(": phase %q", phase)
	}
	if done {
		return subject + " has been " + what + "."
	}
	return subject + " could not be " + what + "."
}

// ParseParams parses a plan's parameters as the CLI takes them: "NAME=value", where the value
// may contain "=".
func ParseParams(args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("parameter %q: Must have one variable name and one variable value per definition", a)
		}
		out[name] = value
	}
	return out, nil
}
