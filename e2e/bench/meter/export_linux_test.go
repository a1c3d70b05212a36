package meter

import "golang.org/x/sys/unix"

// InNewNetwork runs f in a network namespace that ends with it.
func InNewNetwork(f func() error) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}
