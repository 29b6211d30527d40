//go:build !unix

package terminal

import "os"

// resized: the next picture has the new size.
func resized() <-chan os.Signal { return nil }
