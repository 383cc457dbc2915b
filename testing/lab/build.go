package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Build makes the image if it is not there yet, and gives its folder. It needs
// root, mmdebstrap and the packages of this host's own Debian release, all of
// which it says if they are missing. Output of tools goes to log.
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
	if _, err := findImage(); err == nil {
		return string(i), nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("the image of light machines can be made by root only")
	}
	for tool, why := range map[string]string{"apt-get": "Debian's packages", "mmdebstrap": "apt-get install mmdebstrap", "dpkg-deb": "Debian's packages"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("the image of light machines needs the program %s: %s", tool, why)
		}
	}
	aside := image(string(i) + ".new")
	if err := os.RemoveAll(string(aside)); err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(aside.run(), 0o755), os.MkdirAll(aside.mirror(), 0o755)); err != nil {
		return "", err
	}
	b := &builder{ctx: ctx, log: log, to: aside}
	if err := b.build(); err != nil {
		return "", errors.Join(fmt.Errorf("make the image of light machines: %w", err), os.RemoveAll(string(aside)))
	}
	// It is there whole or not at all.
	return string(i), os.Rename(string(aside), string(i))
}

// builder makes one image.
type builder struct {
	ctx context.Context
	log io.Writer
	to  image
}

// run runs a tool and gives its output.
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
	targets, err := b.run("apt-get", "indextargets", "--format", sourceFormat, "Created-By: Packages")
	if err != nil {
		return err
	}
	codename, sources := parseSources(string(targets))
	if codename == "" {
		return errors.New("this host's apt knows no release of Debian (after apt-get update): the image is made of Debian's packages")
	}
	var list strings.Builder
	for _, s := range sources {
		fmt.Fprintln(&list, s)
	}
	file := filepath.Join(string(b.to), "sources.list")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	if err := b.system(codename, file); err != nil {
		return err
	}
	return b.packages(file)
}

// system makes the root file system. No source of packages and no host key is
// left in it: machines have the mirror, and keys of their own.
func (b *builder) system(codename, sources string) error {
	args := []string{"--mode=root", "--variant=minbase", "--include=" + strings.Join(recipe.packages, ",")}
	for _, o := range []string{`Acquire::Languages "none"`, "APT::Install-Recommends false"} {
		args = append(args, "--aptopt="+o)
	}
	for _, o := range []string{"force-unsafe-io", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*"} {
		args = append(args, "--dpkgopt="+o)
	}
	for _, h := range []string{
		`chroot "$1" useradd --create-home --shell /bin/bash debian`,
		`echo "debian ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/debian"`,
		`rm -rf "$1"/etc/ssh/ssh_host_* "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/etc/machine-id`,
		// What only looks for the outside world, or for hardware.
		`rm -f "$1"/etc/systemd/system/*.wants/*.timer "$1"/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service "$1"/etc/systemd/system/getty.target.wants/*`,
		`: > "$1/etc/resolv.conf"`,
	} {
		args = append(args, "--customize-hook="+h)
	}
	_, err := b.run("mmdebstrap", append(args, codename, b.to.root(), sources)...)
	return err
}

// packages fills the mirror: what machines are offered and all that it needs
// beside what the image has.
func (b *builder) packages(sources string) error {
	work := filepath.Join(string(b.to), "apt")
	defer os.RemoveAll(work)
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o755); err != nil {
			return err
		}
	}
	apt := []string{
		"-q", "-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::State::lists=" + filepath.Join(work, "lists"),
		"-o", "Dir::State::status=" + filepath.Join(b.to.root(), "var/lib/dpkg/status"), "-o", "Dir::Cache=" + filepath.Join(work, "cache"),
		"-o", "APT::Install-Recommends=false", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
	}
	if _, err := b.run("apt-get", append(apt, "update")...); err != nil {
		return err
	}
	if _, err := b.run("apt-get", append(append(apt, "--yes", "--download-only", "install"), recipe.mirror...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
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
