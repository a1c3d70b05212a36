package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/moby/ipvs"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// rowsFile is where the rows of a candidate are kept until it is gone.
const rowsFile = "rows.json"

// saveRows keeps the rows that the candidate wrote at its start, for the limit.
func (r *run) saveRows(ctx context.Context, dir string) error {
	if r.Writer == "" {
		return errors.New("no -writer was given")
	}
	if r.cell.Kernel == nil || r.cell.Kernel.Destinations == 0 {
		return errNoIPVS
	}
	_, err := r.world.Node.Output(ctx, fmt.Sprintf("'%s' -save '%s'", r.Writer, filepath.Join(dir, rowsFile)))
	return err
}

var errNoIPVS = errors.New("the candidate has no destinations in IPVS")

// limit writes the rows of the candidate, which is gone, as fast as the kernel takes them.
func (r *run) limit(ctx context.Context, dir string) error {
	if err := r.world.Node.Do(clearIPVS); err != nil {
		return fmt.Errorf("take away what the candidate left: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Writer, "-from", filepath.Join(dir, rowsFile), "-json")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("write rows: %w: %s", err, bytes.TrimSpace(complaints.Bytes()))
	}
	out := &cell.Limit{}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read what the limit is: %w", err)
	}
	r.cell.Limit = out
	r.say("%s, %d Services: the limit of writing its %d rows is %.3g s", r.cell.Candidate, r.n, out.Sum.Rows, out.Sum.Wall)
	return r.cell.Save(r.Out)
}

// clearIPVS empties the table of virtual servers, of this thread's namespace: the kernel has one hash table for all namespaces.
func clearIPVS() error {
	h, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Flush()
}
