package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Build builds the image, unless it exists, and returns its folder. It needs root, mmdebstrap and
// packages of the host's Debian release; the error names what is missing. The output of tools goes
// to log.
func Build(ctx context.Context, log io.Writer) (string, error) {
	i, err := imagePath()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(string(i)), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(string(i)+".lock", os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	_, noRoot := os.Stat(i.root())
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		if _, err := os.Stat(i.layer(name)); err != nil {
			missing = append(missing, name)
		}
	}
	if noRoot == nil && len(missing) == 0 {
		return string(i), nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("only root can build the image of light machines")
	}
	for tool, why := range map[string]string{"apt-get": "Debian's packages", "mmdebstrap": "apt-get install mmdebstrap",
		"dpkg-deb": "Debian's packages"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("the image of light machines needs the program %s: %s", tool, why)
		}
	}
	b := &builder{ctx: ctx, log: log}
	if noRoot != nil {
		b.to = image(string(i) + ".new")
		if err := b.aside(string(b.to), b.build); err != nil {
			return "", fmt.Errorf("build the image of light machines: %w", err)
		}
		// The rename makes the image appear completely or not at all.
		if err := os.Rename(string(b.to), string(i)); err != nil {
			return "", err
		}
	}
	b.to = i
	for _, name := range missing {
		layer := i.layer(name) + ".new"
		if err := b.aside(layer, func() error { return b.layer(name, layer) }); err != nil {
			return "", fmt.Errorf("build the layer %s of light machines: %w", name, err)
		}
		if err := os.Rename(layer, i.layer(name)); err != nil {
			return "", err
		}
	}
	return string(i), nil
}

// aside creates a folder and fills it, or leaves nothing behind.
func (b *builder) aside(dir string, fill func() error) error {
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = fill()
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// builder builds one image.
type builder struct {
	ctx context.Context
	log io.Writer
	to  image
}

// run runs a tool and returns its output.
func (b *builder) run(name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, b.log
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out.Bytes(), nil
}

func (b *builder) build() error {
	if err := errors.Join(os.Mkdir(b.to.run(), 0o755), os.Mkdir(b.to.mirror(), 0o755)); err != nil {
		return err
	}
	file := filepath.Join(string(b.to), "sources.list")
	defer os.Remove(file)
	codename, err := b.sources(file)
	if err != nil {
		return err
	}
	if err := b.system(codename, file); err != nil {
		return err
	}
	return b.packages(file)
}

// sources writes a list of Debian's sources and returns the release's code name.
func (b *builder) sources(file string) (codename string, err error) {
	targets, err := b.run("apt-get", "indextargets", "--format", sourceFormat, "Created-By: Packages")
	if err != nil {
		return "", err
	}
	codename, sources := parseSources(string(targets))
	if codename == "" {
		return "", errors.New("apt on this host knows no release of Debian, from whose packages the image is built: run apt-get update")
	}
	var list strings.Builder
	for _, s := range sources {
		fmt.Fprintln(&list, s)
	}
	return codename, os.WriteFile(file, []byte(list.String()), 0o600)
}

// system builds the root file system. It contains no package sources and no host key: machines use
// the mirror, and get keys of their own.
func (b *builder) system(codename, sources string) error {
	args := []string{"--mode=root", "--variant=minbase", "--include=" + strings.Join(recipe.packages, ",")}
	for _, o := range []string{`Acquire::Languages "none"`, "APT::Install-Recommends false"} {
		args = append(args, "--aptopt="+o)
	}
	for _, o := range []string{"force-unsafe-io", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*",
		"path-exclude=/usr/share/doc/*"} {
		args = append(args, "--dpkgopt="+o)
	}
	for _, h := range []string{
		`chroot "$1" useradd --create-home --shell /bin/bash debian`,
		`echo "debian ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/debian"`,
		`rm -rf "$1"/etc/ssh/ssh_host_* "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/etc/machine-id`,
		// Units that only use the Internet or hardware.
		`rm -f "$1"/etc/systemd/system/*.wants/*.timer "$1"/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service ` +
			`"$1"/etc/systemd/system/getty.target.wants/*`,
		`: > "$1/etc/resolv.conf"`,
	} {
		args = append(args, "--customize-hook="+h)
	}
	_, err := b.run("mmdebstrap", append(args, codename, b.to.root(), sources)...)
	return err
}

// fetch downloads packages with all dependencies that the image lacks.
func (b *builder) fetch(sources, work string, packages []string) ([]string, error) {
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o755); err != nil {
			return nil, err
		}
	}
	apt := []string{
		"-q", "-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=/dev/null", "-o",
		"Dir::State::lists=" + filepath.Join(work, "lists"),
		"-o", "Dir::State::status=" + filepath.Join(b.to.root(), "var/lib/dpkg/status"), "-o", "Dir::Cache=" + filepath.Join(work, "cache"),
		"-o", "APT::Install-Recommends=false", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
	}
	if _, err := b.run("apt-get", append(apt, "update")...); err != nil {
		return nil, err
	}
	if _, err := b.run("apt-get", append(append(apt, "--yes", "--download-only", "install"), packages...)...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
}

// packages fills the mirror with the packages for machines.
func (b *builder) packages(sources string) error {
	work := filepath.Join(string(b.to), "apt")
	defer os.RemoveAll(work)
	debs, err := b.fetch(sources, work, recipe.mirror)
	if err != nil {
		return err
	}
	var index bytes.Buffer
	for _, deb := range debs {
		control, err := b.run("dpkg-deb", "--field", deb)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(deb)
		if err != nil {
			return err
		}
		name := filepath.Base(deb)
		fmt.Fprintf(&index, "%s\nFilename: ./%s\nSize: %d\nSHA256: %x\n\n", bytes.TrimSpace(control), name, len(content), sha256.Sum256(content))
		if err := os.Rename(deb, filepath.Join(b.to.mirror(), name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(b.to.mirror(), "Packages"), index.Bytes(), 0o644)
}

// layer builds a layer over the image's root.
func (b *builder) layer(name, layer string) error {
	work := layer + ".apt"
	defer os.RemoveAll(work)
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	list := filepath.Join(work, "sources.list")
	if _, err := b.sources(list); err != nil {
		return err
	}
	debs, err := b.fetch(list, work, layers[name])
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if _, err := b.run("dpkg-deb", "--extract", deb, layer); err != nil {
			return err
		}
	}
	// In the root these are links into /usr, which a folder in the layer would hide.
	for _, d := range []string{"lib", "lib64", "bin", "sbin"} {
		if _, err := os.Stat(filepath.Join(layer, d)); err != nil {
			continue
		}
		if _, err := b.run("cp", "-a", filepath.Join(layer, d)+"/.", filepath.Join(layer, "usr", d)); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(layer, d)); err != nil {
			return err
		}
	}
	for _, d := range []string{"doc", "man", "locale"} { // as in the root
		if err := os.RemoveAll(filepath.Join(layer, "usr/share", d)); err != nil {
			return err
		}
	}
	if name != "engine" {
		return nil
	}
	for _, name := range []string{"iptables", "ip6tables"} {
		if err := os.Symlink("xtables-nft-multi", filepath.Join(layer, "usr/sbin", name)); err != nil {
			return err
		}
	}
	return nil
}
