# worker.sh LANE: takes units from the queue until it is empty. The move of a file is what makes a unit one guest's alone.
queue=/run/kube-ipvs/queue
cd "$queue/todo" || exit 125
failed=0
for file in *; do
	mv -- "$file" ../taken/ 2>/dev/null || continue
	echo "=== ITEM ${file#* }"
	status=0
	(cd / && exec bash "$queue/taken/$file") || status=$? failed=1
	echo "=== DONE ${file#* } $status"
done
exit $failed
