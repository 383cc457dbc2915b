package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// imageUser is the number of the user of the agent in the image.
const imageUser = 55054

type object = map[string]any

// image writes an archive that "docker load" takes and that is an OCI image layout, too. The image has the programs, the plugins
// and an agent's configuration, and nothing of a distribution.
func (r release) image(w io.Writer) error {
	layer, err := r.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(object{
		"architecture": r.arch, "os": "linux", "created": r.time.Format(time.RFC3339),
		"config": object{
			"User": fmt.Sprintf("%d:%d", imageUser, imageUser), "Entrypoint": []string{"/usr/bin/coopr-agent"},
			"Cmd": []string{"run", "--config", "/etc/coopr/agent.yaml"}, "WorkingDir": "/",
			"Env": []string{"PATH=/usr/bin", "SSL_CERT_DIR=/etc/ssl/certs"}, "StopSignal": "SIGTERM",
			"ExposedPorts": object{"55054/tcp": object{}, "55055/tcp": object{}, "55056/tcp": object{}, "55056/udp": object{}},
			"Volumes":      object{"/var/lib/coopr": object{}, "/var/lib/coopr-keyring": object{}, "/var/lib/coopr-work": object{}},
			"Labels": object{"org.opencontainers.image.title": "coopr", "org.opencontainers.image.version": r.version,
				"org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
		"history": []object{{"created": r.time.Format(time.RFC3339), "created_by": "coopr"}},
	})
	if err != nil {
		return err
	}
	describe := func(kind string, content []byte) object {
		return object{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + sum(content), "size": len(content)}
	}
	manifest, err := json.Marshal(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": describe("config.v1+json", config), "layers": []object{describe("layer.v1.tar", layer)}})
	if err != nil {
		return err
	}
	entry := describe("manifest.v1+json", manifest)
	entry["annotations"] = object{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "coopr:" + r.version}
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []object{entry}})
	if err != nil {
		return err
	}
	list, err := json.Marshal([]object{{"Config": blob(config), "RepoTags": []string{"coopr:" + r.version}, "Layers": []string{blob(layer)}}})
	if err != nil {
		return err
	}
	t := archive{tar.NewWriter(w), r.time}
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index}, {"manifest.json", list},
		{blob(config), config}, {blob(manifest), manifest}, {blob(layer), layer},
	} {
		if err := t.file(f.name, f.content, 0o644, 0); err != nil {
			return err
		}
	}
	return t.Close()
}

// layer returns the file system of the image.
func (r release) layer() ([]byte, error) {
	var out bytes.Buffer
	t := archive{tar.NewWriter(&out), r.time}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/\ncoopr:x:%d:%d:Coopr agent:/var/lib/coopr:/\n", imageUser, imageUser)
	group := fmt.Sprintf("root:x:0:\ncoopr:x:%d:\n", imageUser)
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	settings, err := own.ReadFile("files/agent.yaml")
	if err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name  string
		mode  int64
		owner int
	}{
		{"etc/", 0o755, 0}, {"etc/coopr/", 0o755, 0}, {"tmp/", 0o1777, 0}, {"usr/", 0o755, 0}, {"usr/bin/", 0o755, 0}, {"usr/lib/", 0o755, 0},
		{"usr/lib/coopr/", 0o755, 0}, {"usr/lib/coopr/plugins/", 0o755, 0}, {"usr/share/", 0o755, 0}, {"usr/share/doc/", 0o755, 0},
		{"usr/share/doc/coopr/", 0o755, 0}, {"var/", 0o755, 0}, {"var/lib/", 0o755, 0}, {"var/lib/coopr/", 0o700, imageUser},
		{"var/lib/coopr-keyring/", 0o700, imageUser}, {"var/lib/coopr-work/", 0o700, imageUser},
	} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d.name, Mode: d.mode, Uid: d.owner, Gid: d.owner, ModTime: r.time,
			Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		name, content string
	}{{"etc/passwd", passwd}, {"etc/group", group}, {"etc/coopr/agent.yaml", string(settings)}, {"usr/share/doc/coopr/copyright", string(license)}} {
		if err := t.file(f.name, []byte(f.content), 0o644, 0); err != nil {
			return nil, err
		}
	}
	programs, err := os.ReadDir(r.bin) // sorted
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		to := "usr/lib/coopr/plugins/"
		switch {
		case p.Name() == "coopr" || p.Name() == "coopr-agent":
			to = "usr/bin/"
		case !strings.HasPrefix(p.Name(), "coopr-"):
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.bin, p.Name()))
		if err == nil {
			err = t.file(to+p.Name(), content, 0o755, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	err = t.Close()
	return out.Bytes(), err
}

// archive writes files that all have the same time.
type archive struct {
	*tar.Writer
	time time.Time
}

func (t archive) file(name string, content []byte, mode int64, owner int) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: mode, Uid: owner, Gid: owner, ModTime: t.time,
		Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

func sum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// blob returns the path of a content in the archive.
func blob(content []byte) string { return "blobs/sha256/" + sum(content) }
