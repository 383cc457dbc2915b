package libvirt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// The seed disk is a FAT file system with the label "cidata", in which cloud-init finds its data
// (data source NoCloud). It is a minimal FAT12: one FAT of two sectors, a root folder of one
// sector, clusters of one sector.
const (
	sector   = 512
	fats     = 2 // sectors of the FAT, for 682 clusters
	rootAt   = 1 + fats
	rootSize = 1 // sectors, for 16 entries
	dataAt   = rootAt + rootSize
	clusters = fats*sector*2/3 - 2
)

// seedFile is a file on the disk.
type seedFile struct {
	name, short string // short has the form 8.3, padded
	content     []byte
}

// seed returns the content of the disk.
func seed(instance, hostname string, userData []byte) ([]byte, error) {
	files := []seedFile{
		{"meta-data", "META-D~1   ", fmt.Appendf(nil, "instance-id: %s\nlocal-hostname: %s\n", instance, hostname)},
		{"user-data", "USER-D~1   ", userData},
	}
	disk := make([]byte, (dataAt+clusters)*sector)
	boot := disk[:sector]
	copy(boot, "\xeb\x3c\x90coopr   ")
	le := binary.LittleEndian
	le.PutUint16(boot[11:], sector)
	boot[13] = 1 // sectors of a cluster
	le.PutUint16(boot[14:], 1)
	boot[16] = 1 // FATs
	le.PutUint16(boot[17:], rootSize*sector/32)
	le.PutUint16(boot[19:], dataAt+clusters)
	boot[21] = 0xf8
	le.PutUint16(boot[22:], fats)
	le.PutUint16(boot[24:], 1) // sectors of a track
	le.PutUint16(boot[26:], 1) // heads
	boot[36], boot[38] = 0x80, 0x29
	le.PutUint32(boot[39:], 0xc00b)
	copy(boot[43:], "cidata     FAT12   ")
	boot[510], boot[511] = 0x55, 0xaa

	fat := disk[sector : rootAt*sector]
	link := func(cluster, next int) { // entries have twelve bits
		at := cluster + cluster/2
		old := le.Uint16(fat[at:])
		if cluster%2 == 0 {
			le.PutUint16(fat[at:], old&0xf000|uint16(next))
		} else {
			le.PutUint16(fat[at:], old&0x000f|uint16(next)<<4)
		}
	}
	link(0, 0xff8)
	link(1, 0xfff)

	var root bytes.Buffer
	label := make([]byte, 32)
	copy(label, "cidata     \x08")
	root.Write(label)
	next := 2
	for _, f := range files {
		need := (len(f.content) + sector - 1) / sector
		if next+need > clusters+2 {
			return nil, fmt.Errorf("%s has %d bytes, but the seed disk has room for %d in all", f.name, len(f.content), clusters*sector)
		}
		first := 0
		for i := range need {
			if i == 0 {
				first = next
			}
			copy(disk[(dataAt+next-2)*sector:(dataAt+next-1)*sector], f.content[i*sector:])
			if i == need-1 {
				link(next, 0xfff)
			} else {
				link(next, next+1)
			}
			next++
		}
		root.Write(longName(f))
		e := make([]byte, 32)
		copy(e, f.short)
		e[11] = 0x20
		le.PutUint16(e[24:], 0x21) // 1 January 1980
		le.PutUint16(e[26:], uint16(first))
		le.PutUint32(e[28:], uint32(len(f.content)))
		root.Write(e)
	}
	copy(disk[rootAt*sector:dataAt*sector], root.Bytes())
	return disk, nil
}

// longName returns the directory entry that holds a long name of up to 13 characters, before the
// short one.
func longName(f seedFile) []byte {
	var sum byte
	for _, c := range []byte(f.short) {
		sum = sum>>1 | sum<<7
		sum += c
	}
	letters := utf16.Encode([]rune(f.name))
	if len(letters) < 13 {
		letters = append(letters, 0)
	}
	for len(letters) < 13 {
		letters = append(letters, 0xffff)
	}
	e := make([]byte, 32)
	e[0], e[11], e[13] = 0x41, 0x0f, sum
	at := []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}
	for i, c := range letters {
		binary.LittleEndian.PutUint16(e[at[i]:], c)
	}
	return e
}

// size parses a flavor: CPUSxMEBIBYTES, or CPUSxMEBIBYTESxGIBIBYTES with the size of the disk.
func size(flavor string) (cpus, mebibytes, gibibytes int, err error) {
	n, _ := fmt.Sscanf(flavor+"x0", "%dx%dx%d", &cpus, &mebibytes, &gibibytes)
	if parts := strings.Count(flavor, "x"); n != 3 || parts < 1 || parts > 2 || cpus < 1 || cpus > 1024 || mebibytes < 1 ||
		mebibytes > 64<<20 || gibibytes < 0 || gibibytes > 1<<20 {
		return 0, 0, 0, fmt.Errorf("flavor %q is not CPUSxMEBIBYTES, such as 2x2048, or CPUSxMEBIBYTESxGIBIBYTES of disk", flavor)
	}
	return cpus, mebibytes, gibibytes, nil
}
