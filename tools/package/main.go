// Command package makes the packages of a release: a deb, an rpm and a container image. It needs neither the tools of a
// distribution nor Docker. Equal files yield equal packages.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// release is a release of one architecture.
type release struct {
	source  string // folder of the repository, or of an archive of the release
	bin     string // folder of the programs and plugins
	manual  string // folder of manual pages and completions, as "coopr manual" writes it
	version string
	arch    string    // of Go: amd64, arm64
	time    time.Time // of all files
	formats []string  // of deb, rpm and image
}

func main() {
	var r release
	var out string
	var epoch int64
	flag.StringVar(&r.source, "source", ".", "folder with LICENSE, CHANGELOG.md, docs and examples")
	flag.StringVar(&r.bin, "bin", "bin", "folder of the programs")
	flag.StringVar(&r.manual, "manual", "manual", "folder that \"coopr manual\" and \"coopr-agent manual\" have written")
	flag.StringVar(&r.version, "version", "", "version of the release, such as 0.1.0")
	flag.StringVar(&r.arch, "arch", "amd64", "architecture in the words of Go")
	formats := flag.String("formats", "deb,rpm,image", "what to make, separated by commas")
	flag.StringVar(&out, "out", "dist", "folder of the packages")
	flag.Int64Var(&epoch, "time", 0, "time of all files in seconds since 1970")
	flag.Parse()
	r.formats = strings.Split(*formats, ",")
	r.time = time.Unix(epoch, 0).UTC()
	if err := r.write(out); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

// write writes the packages to a folder.
func (r release) write(out string) error {
	if r.version == "" {
		return errors.New("--version is missing")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "coopr-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, format := range r.formats {
		if format == "image" {
			err = r.writeImage(out)
		} else {
			err = r.pack(format, work, out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// writeImage writes the archive of the image to a folder.
func (r release) writeImage(out string) error {
	name := filepath.Join(out, fmt.Sprintf("coopr-%s-image-%s.tar", r.version, r.arch))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = r.image(f)
	return cmp.Or(err, f.Close())
}
