package lab

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recipe describes the content of the image; a change leads to another image.
var recipe = struct {
	version  int      // raised when the building itself changes
	packages []string // installed in the image
	mirror   []string // offered to machines, with all dependencies
}{
	version:  2,
	packages: []string{"openssh-server", "tini", "systemd-sysv", "iproute2", "iputils-ping", "procps", "sudo", "curl", "python3-minimal"},
	mirror: []string{
		"haproxy", "redis-server", "redis-sentinel", "postgresql", "gunicorn", "python3-psycopg2", "etcd-server", "etcd-client",
		"puppet-agent", "docker.io", "python3",
	},
}

// layers are packages that are unpacked over the root of machines, without their setup, which takes
// no time. Layers that an image lacks are added.
var layers = map[string][]string{
	"engine": {"docker.io"},
	// A cluster stack, with both of its tools (Lab.Layer).
	"pacemaker": {"pacemaker", "corosync", "resource-agents", "crmsh", "pcs"},
}

// cacheVar names the folder of images; the default is in the user's cache.
const cacheVar = "COOPR_LAB_CACHE"

// image is a folder with a Debian root file system and a package mirror.
type image string

func (i image) root() string   { return filepath.Join(string(i), "root") }   // lower layer of all machines
func (i image) mirror() string { return filepath.Join(string(i), "mirror") } // packages and their index
func (i image) run() string    { return filepath.Join(string(i), "run") }    // an empty mount point
func (i image) engine() string { return i.layer("engine") }                  // upper layer with a Docker engine

// layer returns the folder of a layer.
func (i image) layer(name string) string { return filepath.Join(string(i), name+"1") }

// imagePath returns the path of this recipe's image, which may not exist yet.
func imagePath() (image, error) {
	dir := os.Getenv(cacheVar)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no folder for the image of light machines: %w", err)
		}
		dir = filepath.Join(cache, "coopr-lab")
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s must be an absolute path, not %q", cacheVar, dir)
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(recipe)))
	return image(filepath.Join(dir, fmt.Sprintf("%x", sum[:6]))), nil
}

// findImage returns the image, or an error that says how to build it.
func findImage() (image, error) {
	i, err := imagePath()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(i.root()); err != nil {
		return "", errors.New("light machines need their Debian image: make ci-deps, or make lab-image (once; under a minute, 300 MB)")
	}
	return i, nil
}

// source is one source of Debian's packages.
type source struct{ uri, release, component string }

func (s source) String() string {
	return fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s %s", s.uri, s.release, s.component)
}

// sourceFormat makes "apt-get indextargets" print lines for parseSources.
const sourceFormat = "$(ORIGIN)|$(CODENAME)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)"

// parseSources returns Debian's own sources among those of this host, and the code name of its
// release.
func parseSources(targets string) (codename string, sources []source) {
	seen := map[source]bool{}
	for line := range strings.Lines(targets) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 || f[0] != "Debian" || f[2] != "main" {
			continue
		}
		// "bookworm-security" and "bookworm-updates" belong to "bookworm".
		if base, _, suffixed := strings.Cut(f[1], "-"); !suffixed {
			codename = cmp.Or(codename, base)
		}
		s := source{uri: f[3], release: f[4], component: f[2]}
		if !seen[s] {
			seen[s] = true
			sources = append(sources, s)
		}
	}
	return codename, sources
}
