package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

//go:embed files
var own embed.FS

const about = `Control plane for clusters of machines and services
 Coopr manages clusters, that is machines and the services on them, as single
 things. It has no central server and no external database: every control host
 runs the same agent, and the agents replicate the state among themselves.`

// pack writes a deb or an rpm to the folder out. The folder work has the files that the package needs in another form.
func (r release) pack(format, work, out string) error {
	b := builder{release: r, work: filepath.Join(work, format)}
	if err := os.MkdirAll(b.work, 0o755); err != nil {
		return err
	}
	if err := b.fill(format); err != nil {
		return err
	}
	info := &nfpm.Info{
		Name: "coopr", Arch: r.arch, Platform: "linux", Version: r.version, Release: "1", Section: "admin", Priority: "optional",
		Maintainer: "The Coopr authors <coopr@localhost>", Vendor: "Coopr", License: "Apache-2.0", Description: about,
		MTime: r.time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: b.contents, Umask: 0o022, Recommends: []string{"openssh-client"},
			Scripts: nfpm.Scripts{PreInstall: b.script("preinst.sh"), PostInstall: b.script("postinst.sh"), PreRemove: b.script("prerm.sh"),
				PostRemove: b.script("postrm.sh")},
			RPM: nfpm.RPM{BuildHost: "coopr", Compression: "gzip"},
		},
	}
	if format == "rpm" { // whose weak dependencies have other names
		info.Recommends = []string{"openssh-clients"}
		info.Depends = []string{"shadow-utils"}
	} else {
		info.Depends = []string{"passwd"}
	}
	if b.err != nil {
		return b.err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var content bytes.Buffer
	if err := packager.Package(info, &content); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, packager.ConventionalFileName(info)), content.Bytes(), 0o644)
}

// builder gathers the files of a package.
type builder struct {
	release
	work     string
	contents files.Contents
	err      error // the first one
}

// add adds a file of the disk.
func (b *builder) add(from, to string, mode fs.FileMode) {
	b.put(&files.Content{Source: from, Destination: to, Type: files.TypeFile}, mode)
}

func (b *builder) put(c *files.Content, mode fs.FileMode) {
	if c.FileInfo == nil {
		c.FileInfo = &files.ContentFileInfo{Owner: "root", Group: "root"}
	}
	c.FileInfo.Mode, c.FileInfo.MTime = mode, b.time
	b.contents = append(b.contents, c)
}

// write writes a file into the folder work and returns its path.
func (b *builder) write(name string, content []byte) string {
	file := filepath.Join(b.work, strings.ReplaceAll(name, "/", "_"))
	b.err = errors.Join(b.err, os.WriteFile(file, content, 0o644))
	return file
}

// script returns the path of a copy of a file of this program.
func (b *builder) script(name string) string {
	content, err := own.ReadFile(path.Join("files", name))
	b.err = errors.Join(b.err, err)
	return b.write(name, content)
}

// tree adds all files below a folder.
func (b *builder) tree(from, to string, keep func(name string) bool) {
	b.err = errors.Join(b.err, filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, p)
		if err != nil || !keep(name) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		b.add(p, path.Join(to, filepath.ToSlash(name)), mode)
		return nil
	}))
}

// fill gathers the files of a package.
func (b *builder) fill(format string) error {
	programs := func(name string) bool { return name == "coopr" || name == "coopr-agent" }
	b.tree(b.bin, "/usr/bin", programs)
	b.tree(b.bin, "/usr/lib/coopr/plugins", func(name string) bool { return !programs(name) && strings.HasPrefix(name, "coopr-") })
	b.add(filepath.Join(b.source, "LICENSE"), "/usr/share/doc/coopr/copyright", 0o644)
	b.add(filepath.Join(b.source, "CHANGELOG.md"), "/usr/share/doc/coopr/CHANGELOG.md", 0o644)
	b.tree(filepath.Join(b.source, "docs"), "/usr/share/doc/coopr", func(name string) bool {
		return !strings.HasPrefix(name, "decisions") && !strings.HasPrefix(name, "spec")
	})
	b.tree(filepath.Join(b.source, "examples"), "/usr/share/doc/coopr/examples", func(name string) bool {
		return !strings.HasSuffix(name, ".go")
	})
	b.add(filepath.Join(b.source, "examples/systemd/separate.conf"), "/usr/share/coopr/separate.conf", 0o644)
	b.manuals(format)
	b.unit()
	b.put(&files.Content{Source: b.script("agent.yaml"), Destination: "/etc/coopr/agent.yaml", Type: files.TypeConfigNoReplace,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "coopr"}}, 0o640)
	b.put(&files.Content{Destination: "/etc/coopr", Type: files.TypeDir,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "coopr"}}, 0o750)
	b.add(b.script("sysusers.conf"), "/usr/lib/sysusers.d/coopr.conf", 0o644)
	b.add(b.script("tmpfiles.conf"), "/usr/lib/tmpfiles.d/coopr.conf", 0o644)
	return b.err
}

// manuals adds the manual pages and the completions.
func (b *builder) manuals(format string) {
	pages, err := filepath.Glob(filepath.Join(b.manual, "man", "*.1"))
	if err == nil && len(pages) == 0 {
		err = fmt.Errorf("%s has no manual pages", b.manual)
	}
	b.err = errors.Join(b.err, err)
	for _, page := range pages {
		content, err := os.ReadFile(page)
		var zipped bytes.Buffer
		z, zerr := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // without name and time
		if zerr == nil {
			_, zerr = z.Write(content)
		}
		b.err = errors.Join(b.err, err, zerr, z.Close())
		name := filepath.Base(page) + ".gz"
		b.add(b.write(name, zipped.Bytes()), "/usr/share/man/man1/"+name, 0o644)
	}
	zsh := "/usr/share/zsh/vendor-completions/_"
	if format == "rpm" {
		zsh = "/usr/share/zsh/site-functions/_"
	}
	for _, program := range []string{"coopr", "coopr-agent"} {
		from := filepath.Join(b.manual, "completion", program)
		b.add(from+".bash", "/usr/share/bash-completion/completions/"+program, 0o644)
		b.add(from+".zsh", zsh+program, 0o644)
		b.add(from+".fish", "/usr/share/fish/vendor_completions.d/"+program+".fish", 0o644)
	}
}

// unit adds the unit of systemd. It is that of the examples with the paths of the package. A restart leaves the nodes of the
// provider local alone, so that an upgrade ends none of them.
func (b *builder) unit() {
	text, err := os.ReadFile(filepath.Join(b.source, "examples/systemd/coopr-agent.service"))
	b.err = errors.Join(b.err, err)
	_, unit, ok := strings.Cut(string(text), "[Unit]")
	if !ok {
		b.err = errors.Join(b.err, errors.New("the unit has no section [Unit]"))
	}
	unit = "[Unit]" + unit
	for _, change := range [][2]string{
		{"/usr/local/lib/coopr/coopr-agent", "/usr/bin/coopr-agent"},
		{"Documentation=file:/usr/local/share/doc/coopr/operations.md", "Documentation=man:coopr-agent(1) file:/usr/share/doc/coopr/operations.md"},
		{`# and leaves. What is still there after that is killed with it.
# With the "local" provider, whose nodes are processes of this machine, set
# KillMode=process, or a restart of the agent ends the nodes too.
KillMode=mixed`, `# and leaves. Nodes of the provider "local", which are processes of this machine, go on.
KillMode=process`},
	} {
		if !strings.Contains(unit, change[0]) {
			b.err = errors.Join(b.err, fmt.Errorf("the unit lacks %q", change[0]))
		}
		unit = strings.ReplaceAll(unit, change[0], change[1])
	}
	b.add(b.write("coopr-agent.service", []byte(unit)), "/usr/lib/systemd/system/coopr-agent.service", 0o644)
}
