// Package builtin has the contents of change objects of the builtin types and of types
// that automator plugins offer: their shapes and their faults (docs/changes.md).
// agent/objects/act carries them out.
package builtin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

// Script is the content of a script object: shell scripts, each of which may be absent.
// Without Check the object is in the state in which the last action left it.
type Script struct {
	// Check exits with 0 for up, 1 or 3 for down, and 2 for outdated. Any other exit code is a
	// failure.
	Check   string            `json:"check,omitempty"`
	Start   string            `json:"start,omitempty"`
	Stop    string            `json:"stop,omitempty"`
	Restart string            `json:"restart,omitempty"` // default: stop, then start
	Cleanup string            `json:"cleanup,omitempty"` // default: stop
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"` // where they run; default: Coopr's folder on the machine
	Timeout model.Millis      `json:"timeout,omitempty"`
	Version any               `json:"version,omitempty"` // a changed version makes the object outdated
}

// Service is the content of a service object.
type Service struct {
	// Manager is "systemd", "sysvinit", "process" (supervised by Coopr) or absent. If it is
	// absent, systemd or sysvinit is used when one runs and has the unit, else process.
	Manager string `json:"manager,omitempty"`
	// Unit is the name of the unit or init script; default: the last part of the object's
	// name. If UnitFile is given, it is installed as the systemd unit.
	Unit     string `json:"unit,omitempty"`
	UnitFile string `json:"unit_file,omitempty"`
	// Command, with Env and Dir, is what a supervised process runs.
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	// Ready is a script that exits with 0 once the service can be used. The start action runs it
	// again and again until it exits with 0 or the action's time is over. A check that finds
	// another exit status reports the service as down.
	Ready   string       `json:"ready,omitempty"`
	Timeout model.Millis `json:"timeout,omitempty"`
	Version any          `json:"version,omitempty"`
}

// FileTree is the content of a filetree object.
type FileTree struct {
	Root  string          `json:"root"`
	Files map[string]File `json:"files,omitempty"` // by path below root
	// Tar is a base64 tar archive that is unpacked below root. Files are written after it.
	Tar string `json:"tar,omitempty"`
	// Edits is the policy for changes that people make by hand. "merge" (the default) keeps
	// them, merged with changes of the site. "restore" puts the site's content back and keeps
	// the edit in the repository only.
	Edits   string `json:"edits,omitempty"`
	Version any    `json:"version,omitempty"`
}

// File is a file of a tree. At most one of Content, Base64, Link and Directory is given.
// Without any of them the file is empty.
type File struct {
	Content   *string `json:"content,omitempty"`
	Base64    string  `json:"base64,omitempty"`
	Link      string  `json:"link,omitempty"`
	Directory bool    `json:"directory,omitempty"`
	Mode      string  `json:"mode,omitempty"` // octal; default 0644, directories 0755
	Owner     string  `json:"owner,omitempty"`
	Group     string  `json:"group,omitempty"`
}

// Resource is the content of an ha-resource object: a resource of Pacemaker.
type Resource struct {
	// Tool is "crm" or "pcs". If it is absent, the installed one is used.
	Tool string `json:"tool,omitempty"`
	// Resource is the name of the resource; default: the last part of the object's name. With
	// an Agent such as "ocf:heartbeat:IPaddr2" the start action creates a missing resource.
	Resource   string            `json:"resource,omitempty"`
	Agent      string            `json:"agent,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	Operations []string          `json:"operations,omitempty"` // such as "monitor interval=10s"
	Timeout    model.Millis      `json:"timeout,omitempty"`
	Version    any               `json:"version,omitempty"`
}

// Automated is the content of an object whose type an automator plugin offers: the fields that
// the automator gets for the check and for each action, each of which may be absent. Without
// Check the object is in the state in which the last action left it.
type Automated struct {
	// Check succeeds for up, and fails for down.
	Check   map[string]any `json:"check,omitempty"`
	Start   map[string]any `json:"start,omitempty"`
	Stop    map[string]any `json:"stop,omitempty"`
	Restart map[string]any `json:"restart,omitempty"` // default: stop, then start
	Cleanup map[string]any `json:"cleanup,omitempty"` // default: stop
	Timeout model.Millis   `json:"timeout,omitempty"` // of each
	Version any            `json:"version,omitempty"` // a changed version makes the object outdated
}

// TypeFileTree is the type of objects whose content is a FileTree.
const TypeFileTree = "filetree"

// AutomatedActions are the fields of Automated that have the fields of an automator.
var AutomatedActions = []string{"check", "start", "stop", "restart", "cleanup"}

// Decode reads an object's content into one of the shapes above. The error is model.Faults
// with paths below the content.
func Decode(o *site.Object, into any) error {
	b, err := json.Marshal(o.Content)
	if err != nil {
		return err
	}
	if o.Content == nil {
		return nil
	}
	return decode.Strict(b, into)
}

// Check returns the faults of the contents of a document.
func Check(d *site.Document) model.Faults {
	var faults model.Faults
	for i := range d.Objects {
		o := &d.Objects[i]
		at := fmt.Sprintf("objects[%d].content", i)
		var err error
		var own model.Faults
		switch o.Type {
		case "script":
			err = Decode(o, &Script{})
		case "service":
			s := &Service{}
			if err = Decode(o, s); err == nil {
				own = s.check()
			}
		case TypeFileTree:
			t := &FileTree{}
			if err = Decode(o, t); err == nil {
				_, own = t.Entries()
			}
		case "ha-resource":
			r := &Resource{}
			if err = Decode(o, r); err == nil && r.Tool != "" && r.Tool != "crm" && r.Tool != "pcs" {
				own.Add("tool", fmt.Sprintf("%q is not a tool for Pacemaker: crm or pcs", r.Tool))
			}
		default: // the compiler reports unknown types
			if _, ok := object.Offered(o.Type); ok {
				a := &Automated{}
				if err = Decode(o, a); err == nil && len(a.Start) == 0 {
					own.Add("start", "must have the fields of the automator, as in an action of a service")
				}
			}
		}
		var of model.Faults
		if errors.As(err, &of) {
			own = append(own, of...)
		} else if err != nil {
			own.Add("", err.Error())
		}
		for _, f := range own {
			p := at
			if f.Path != "" {
				p += "." + f.Path
			}
			faults.Add(p, f.Message)
		}
	}
	return faults
}

func (s *Service) check() (faults model.Faults) {
	switch s.Manager {
	case "", "systemd", "sysvinit":
	case "process":
		if len(s.Command) == 0 {
			faults.Add("command", "is missing: give the command of the supervised process")
		}
	default:
		faults.Add("manager", fmt.Sprintf("%q is not a manager of services: systemd, sysvinit or process", s.Manager))
	}
	if s.UnitFile != "" && s.Manager != "systemd" {
		faults.Add("unit_file", `is written for systemd only: set manager to "systemd"`)
	}
	return faults
}

// Entry is a file of a tree as it should be.
type Entry struct {
	Path         string
	Mode         fs.FileMode // permissions
	Directory    bool
	Link         string
	Content      []byte
	Owner, Group string // "" for the user that runs the agent
}

// Entries returns the tree that the content describes, sorted by path, and its faults.
func (t *FileTree) Entries() ([]Entry, model.Faults) {
	var faults model.Faults
	if !path.IsAbs(t.Root) || path.Clean(t.Root) != t.Root || t.Root == "/" {
		faults.Add("root", fmt.Sprintf("%q is not a root for a tree: an absolute path of a folder", t.Root))
	}
	if t.Edits != "" && t.Edits != "merge" && t.Edits != "restore" {
		faults.Add("edits", fmt.Sprintf("%q is nothing that can be done about edits: merge or restore", t.Edits))
	}
	byPath := map[string]Entry{}
	if t.Tar != "" {
		entries, err := untar(t.Tar)
		if err != nil {
			faults.Add("tar", "cannot be read: "+err.Error())
		}
		for _, e := range entries {
			byPath[e.Path] = e
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		f := t.Files[name]
		at := "files." + name
		if !below(name) {
			faults.Add(at, "is not a path below the root: write it without a leading slash and without ..")
			continue
		}
		e := Entry{Path: name, Link: f.Link, Directory: f.Directory, Owner: f.Owner, Group: f.Group, Mode: 0o644}
		if f.Directory {
			e.Mode = 0o755
		}
		given := 0
		for _, is := range []bool{f.Content != nil, f.Base64 != "", f.Link != "", f.Directory} {
			if is {
				given++
			}
		}
		if given > 1 {
			faults.Add(at, "has more than one of content, base64, link and directory")
		}
		if f.Mode != "" {
			m, err := strconv.ParseUint(f.Mode, 8, 12)
			if err != nil || m > 0o7777 {
				faults.Add(at+".mode", fmt.Sprintf("%q is not a mode: octal digits in quotes, such as \"0640\"", f.Mode))
			}
			e.Mode = fs.FileMode(m & 0o777)
		}
		if f.Content != nil {
			e.Content = []byte(*f.Content)
		} else if f.Base64 != "" {
			b, err := base64.StdEncoding.DecodeString(f.Base64)
			if err != nil {
				faults.Add(at+".base64", err.Error())
			}
			e.Content = b
		}
		byPath[name] = e
	}
	if len(byPath) == 0 && len(faults) == 0 {
		faults.Add("files", "is empty: a tree has at least one file, link or directory")
	}
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(byPath)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if up, ok := byPath[dir]; ok && !up.Directory {
				faults.Add("files."+name, dir+" is not a directory")
			}
		}
		out = append(out, byPath[name])
	}
	return out, faults
}

// below reports whether a path is inside the tree and outside of the .git repositories that
// people keep there.
func below(name string) bool {
	return fs.ValidPath(name) && name != "." && !slices.Contains(strings.Split(name, "/"), ".git")
}

// Automator returns the plugin that carries out objects of a type "automator:NAME",
// and false for any other type.
func Automator(typeName string) (plugin string, ok bool) {
	return strings.CutPrefix(typeName, object.OfferedPrefix)
}
