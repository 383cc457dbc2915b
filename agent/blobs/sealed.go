package blobs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/coopr/coopr/consensus/keyring"
)

// A sealed file has a header and pieces. The header is a random key of the file, encrypted with a key of the store. A piece is the
// next pieceLen bytes of the content, encrypted with the key of the file; the last one has the rest. Each is bound to its place.
const (
	pieceLen = 64 << 10
	// overhead is how much longer encrypted data is than its plaintext: the key's number, a nonce and an authentication tag.
	overhead  = 4 + 12 + 16
	headerLen = keyring.Size + overhead
)

// headerPlace returns the additional data of the header of a blob.
func headerPlace(sum string) []byte { return keyring.Bind("plugin resource", sum) }

// piecePlace returns the additional data of a piece.
func piecePlace(n int64) []byte { return keyring.Bind("piece", strconv.FormatInt(n, 10)) }

// sealedLen returns the length of the sealed file of a content.
func sealedLen(size int64) int64 {
	return headerLen + size + (size+pieceLen-1)/pieceLen*overhead
}

// clearLen returns the length of the content of a sealed file.
func clearLen(file int64) int64 {
	body := max(file-headerLen, 0)
	return max(body-(body+pieceLen+overhead-1)/(pieceLen+overhead)*overhead, 0)
}

// writeSealed writes the body of a sealed file, with what r returns until it ends. It leaves room for the header.
func writeSealed(f *os.File, r io.Reader, key keyring.Key) (size int64, err error) {
	if _, err := f.Seek(headerLen, io.SeekStart); err != nil {
		return 0, err
	}
	c, buf := keyring.NewCipher(key), make([]byte, pieceLen)
	for n := int64(0); ; n++ {
		// Not io.ReadFull: its error for a short last piece is that of an upload that was cut off.
		got, err := 0, error(nil)
		for got < len(buf) && err == nil {
			var more int
			more, err = r.Read(buf[got:])
			got += more
		}
		size += int64(got)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return size, err
		}
		if got > 0 {
			if _, err := f.Write(c.Seal(piecePlace(n), buf[:got])); err != nil {
				return size, err
			}
		}
		if last {
			return size, nil
		}
	}
}

// Content is an open blob, as it was uploaded. Reads at offsets are safe for concurrent use.
type Content struct {
	*io.SectionReader
	file *os.File
	done func() // nil: nothing waits for the end
}

// Close closes the file.
func (c *Content) Close() error {
	err := c.file.Close()
	if c.done != nil {
		c.done()
	}
	return err
}

// clearContent returns the content of a file that is not sealed.
func clearContent(f *os.File) (*Content, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &Content{SectionReader: io.NewSectionReader(f, 0, fi.Size()), file: f}, nil
}

// sealedContent returns the content of a sealed file with a key.
func sealedContent(f *os.File, key keyring.Key) (*Content, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := clearLen(fi.Size())
	pieces := &pieceReader{file: f, size: size, cipher: keyring.NewCipher(key)}
	return &Content{SectionReader: io.NewSectionReader(pieces, 0, size), file: f}, nil
}

// pieceReader decrypts the pieces of a file.
type pieceReader struct {
	file   *os.File
	size   int64 // of the content
	cipher *keyring.Cipher

	mu      sync.Mutex
	piece   []byte // the latest one, nil at first
	ordinal int64  // of piece
}

// ReadAt implements io.ReaderAt.
func (p *pieceReader) ReadAt(b []byte, off int64) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) {
		at := off + int64(n)
		if at >= p.size {
			return n, io.EOF
		}
		if err := p.load(at / pieceLen); err != nil {
			return n, err
		}
		n += copy(b[n:], p.piece[at%pieceLen:])
	}
	return n, nil
}

// load decrypts a piece. The caller holds mu.
func (p *pieceReader) load(ordinal int64) error {
	if p.piece != nil && p.ordinal == ordinal {
		return nil
	}
	buf := make([]byte, min(pieceLen, p.size-ordinal*pieceLen)+overhead)
	if _, err := p.file.ReadAt(buf, headerLen+ordinal*(pieceLen+overhead)); errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends in piece %d", ErrCorrupt, ordinal) // io.EOF would end it for a reader as if it were whole
	} else if err != nil {
		return err
	}
	piece, err := p.cipher.Open(piecePlace(ordinal), buf)
	if err != nil {
		return fmt.Errorf("%w: piece %d: %w", ErrCorrupt, ordinal, err)
	}
	p.piece, p.ordinal = piece, ordinal
	return nil
}
