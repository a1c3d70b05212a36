package tune

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SmallPages has the kernel hold this process in pages of the usual size, and the programs it
// starts, too (PR_SET_THP_DISABLE of prctl(2), Linux 3.15). Else, where huge pages are used
// always (Documentation/admin-guide/mm/transhuge.rst), khugepaged makes them of memory that
// is used in part, also of what the process has given back: with 10,000 Services a quarter of
// all it had.
func SmallPages() error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("do without huge pages: %w", err)
	}
	return nil
}
