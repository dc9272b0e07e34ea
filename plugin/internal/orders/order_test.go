package orders

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steersman.dev/plugin/internal/podowner"
)

func isClose(got, want float64) bool {
	return math.Abs(got-want) <= 1e-12*math.Max(1, math.Abs(want))
}

func parse(t testing.TB, spec string) *Order {
	t.Helper()
	order, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return order
}

func TestScoresOfRules(t *testing.T) {
	pod := Pod{Seconds: 100, Size: 3, Wait: 50, Arrived: 1000}
	for spec, want := range map[string]float64{
		"age": 0, "smallest": 3, "largest": -3, "shortest": 100, "area": 300,
		"wfp3": -0.125 * 3, "unicef": -50 / (2 * 100.0), "f1": 2*3 + 870*3,
	} {
		if got := parse(t, spec).Score(&pod, &Cluster{Capacity: 10}); !isClose(got, want) {
			t.Errorf("%s: %v, not %v", spec, got, want)
		}
	}
}

func TestOrdersByName(t *testing.T) {
	for spec, want := range map[string]struct {
		kind     Kind
		estimate Source
	}{
		"age": {Age, Auto}, "age:any": {Age, Auto}, "smallest": {Smallest, Auto}, "largest@none": {Largest, None},
		"shortest@stated": {Shortest, Stated}, "area": {Area, Auto}, "wfp3:any@history": {WFP3, History},
		"unicef@auto": {Unicef, Auto}, "f1": {F1, Auto},
	} {
		order := parse(t, spec)
		if order.Kind != want.kind || order.Estimate != want.estimate || order.Name != spec {
			t.Errorf("%s: %+v", spec, order)
		}
		if order.UsesEstimates() != (want.kind > Largest) {
			t.Errorf("%s uses estimates: %v", spec, order.UsesEstimates())
		}
	}
}

func TestOrdersThatKubeSchedulerCannotFollow(t *testing.T) {
	for spec, says := range map[string]string{
		"":                  `"" is unknown; expected age, smallest,`,
		"fifo":              `"fifo" is unknown; expected age, smallest, largest, shortest, area, wfp3, unicef, f1, NAME@auto`,
		"fcfs":              `"fcfs" holds other pods back while the next one fits nowhere, and kube-scheduler tries every pod; expected age`,
		"easy":              "expected age, or steersman schedule --order easy",
		"wfp3:easy":         "expected wfp3, or steersman schedule --order wfp3:easy",
		"learned@stated":    `"learned" is unknown; expected age,`,
		"age:none@stated":   `"age:none" holds other pods back`,
		"shortest:all":      `"shortest:all" holds`,
		"fair":              `"fair" asks what runs in each namespace, which the plugin does not count; expected age,`,
		"shortest@oracle":   `estimates "oracle": no cluster knows true run times; expected @auto, @stated, @history, @none`,
		"shortest@oracle:3": `estimates "oracle:3": no cluster knows`,
		"shortest@":         `estimates "" are unknown; expected auto, stated, history, none`,
		"shortest@guess":    `estimates "guess" are unknown`,
		"age@ageing:2":      "ageing:2 is not a duration above 0; expected a duration such as 90s, 30m, 2h or 1.5d",
		"age@ageing:0s":     "ageing:0s is not a duration above 0",
		"age@stated@none":   `"age@stated@none": expected one source of estimates and one ageing:TIME at most`,
		"none.safetensors":  "order file none.safetensors: cannot be read: no such file or directory",
	} {
		_, err := Parse(spec)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, not %s", spec, err, says)
		}
	}
}

// orderFile writes an order file with that card and those weights, of that type.
func orderFile(t testing.TB, card string, kind string, weights ...float64) string {
	t.Helper()
	return writeFile(t, "steersman-order", card, kind, weights...)
}

// writeFile writes a file with a card under that key, and one tensor.
func writeFile(t testing.TB, key, card, kind string, weights ...float64) string {
	t.Helper()
	var data []byte
	for _, weight := range weights {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(weight))
	}
	quoted, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	header := fmt.Sprintf(`{"__metadata__":{%q:%s},"order":{"dtype":%q,"shape":[%d],"data_offsets":[0,%d]}}`,
		key, quoted, kind, len(weights), len(data))
	content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	path := filepath.Join(t.TempDir(), "order.safetensors")
	if err := os.WriteFile(path, append(content, data...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const plainCard = `{"name": "mine", "overtaking": "any", "estimates": "auto"}`

func TestOrderFiles(t *testing.T) {
	weights := make([]float64, linearWeights)
	weights[0] = 1 // the logarithm of the estimate alone
	path := orderFile(t, plainCard, "F64", weights...)
	order := parse(t, path+"@history")
	if order.Name != "mine@history" || order.Estimate != History || !math.IsInf(order.ageing, 1) {
		t.Errorf("%+v", order)
	}
	cluster := &Cluster{Capacity: 10, Free: 1}
	short, long := order.Score(&Pod{Seconds: 10, Size: 1}, cluster), order.Score(&Pod{Seconds: 1000, Size: 1}, cluster)
	if short >= long {
		t.Errorf("%v, %v", short, long)
	}
}

func TestInputsOfALearnedOrder(t *testing.T) {
	pod, cluster := Pod{Seconds: 50, Spread: 2, Size: 4, Wait: 9}, &Cluster{Capacity: 10, Free: 0.5, Waiting: 7}
	estimate, queue := (math.Log(50)-7)/3, (math.Log1p(7)-4)/2
	for place, want := range map[int]float64{ // by the places of core/src/order.rs
		0: estimate, 1: (math.Log(0.4) + 3) / 2, 2: (math.Log1p(9) - 6) / 3, 9: 1, 12: 0.5 * estimate, 14: queue * estimate, 16: 2,
	} {
		weights := make([]float64, linearWeights)
		weights[place] = 1
		if got := parse(t, orderFile(t, plainCard, "F64", weights...)).Score(&pod, cluster); !isClose(got, want) {
			t.Errorf("weight %d: %v, not %v", place, got, want)
		}
	}
}

func TestPolicyFilesHaveOrders(t *testing.T) {
	named := parse(t, writeFile(t, "steersman", `{"schema": 1, "order": "wfp3@history@ageing:2h"}`, "F64", 1))
	if named.Kind != WFP3 || named.Estimate != History || named.ageing != 7200 || named.Name != "wfp3@history@ageing:2h" {
		t.Errorf("%+v", named)
	}
	weights := strings.TrimSuffix("1, "+strings.Repeat("0, ", linearWeights-1), ", ")
	learned := parse(t, writeFile(t, "steersman", `{"order": "learned@stated", "order_weights": [`+weights+`]}`, "F64", 1)+"@none")
	cluster := &Cluster{Capacity: 10, Free: 1}
	short, long := learned.Score(&Pod{Seconds: 10, Size: 1}, cluster), learned.Score(&Pod{Seconds: 1000, Size: 1}, cluster)
	if learned.Kind != Learned || learned.Estimate != None || short >= long {
		t.Errorf("%+v, %v, %v", learned, short, long)
	}
	for card, says := range map[string]string{
		`{"order": `:                                     "its card is damaged",
		`{"order": "", "name": "fgd"}`:                   "is a policy without an order",
		`{"name": "fgd"}`:                                "is a policy without an order",
		`{"order": "other.safetensors"}`:                 `its order "other.safetensors" is a file; expected a name`,
		`{"order": "a:b.safetensors@history"}`:           `its order "a:b.safetensors@history" is a file`,
		`{"order": "wfp3:easy"}`:                         "expected wfp3, or steersman schedule --order wfp3:easy",
		`{"order": "wfp3", "order_weights": [1]}`:        `its order "wfp3" takes no weights; expected "learned" with order_weights`,
		`{"order": "learned", "order_weights": [1]}`:     "order_weights are 1 numbers; expected 24, and 10 for each",
		`{"order": "learned"}`:                           "order_weights are 0 numbers",
		`{"order": "learned:easy", "order_weights": []}`: `overtaking is "easy", and kube-scheduler`,
	} {
		_, err := Parse(writeFile(t, "steersman", card, "F64", 1))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, not %s", card, err, says)
		}
	}
}

func TestWhatIsWrongWithAnOrderFileIsOneLine(t *testing.T) {
	right := make([]float64, linearWeights)
	infinite := make([]float64, linearWeights)
	infinite[3] = math.Inf(1)
	for _, each := range []struct {
		card, kind string
		weights    []float64
		says       string
	}{
		{`{`, "F64", right, ": is no order file of this version of steersman: EOF"},
		{`{"schema": 3, "new": 1}`, "F64", right, ", schema: 3 is of another version of steersman; expected 2"},
		{`{"schema": 2, "name": "a", "overtaking": "any", "estimates": "auto", "new": 1}`, "F64", right, "unknown field `new`"},
		{`{"name": "a", "overtaking": "any"}`, "F64", right, "missing field `estimates`"},
		{`{"name": "a", "overtaking": "easy", "estimates": "auto"}`, "F64", right, `overtaking is "easy", and kube-scheduler`},
		{`{"name": "a", "overtaking": "any", "estimates": "oracle"}`, "F64", right, "no cluster knows true run times"},
		{`{"name": "a", "overtaking": "any", "estimates": "auto", "hidden": 1001}`, "F64", right, ", hidden: 1001 must be at least 0 and at most 1000"},
		{`{"name": "a", "overtaking": "any", "estimates": "auto", "hidden": -1}`, "F64", right, ", hidden: -1 must be at least 0"},
		{`{"name": "a", "overtaking": "any", "estimates": "auto", "ageing": 0}`, "F64", right, ", ageing: 0 must be above 0 seconds"},
		{`{"name": "a", "overtaking": "any", "estimates": "auto", "hidden": 1}`, "F64", right, "has shape [24]; expected [34] for its hidden units"},
		{plainCard, "I64", right, ", order: has numbers of I64; expected F64"},
		{plainCard, "F64", right[1:], "has shape [23]; expected [24]"},
		{plainCard, "F64", infinite, "has a weight that is not a finite number"},
	} {
		_, err := Parse(orderFile(t, each.card, each.kind, each.weights...))
		if err == nil || !strings.Contains(err.Error(), each.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, not %s", each.card, err, each.says)
		}
	}
}

func TestFilesThatAreNoOrderFiles(t *testing.T) {
	folder := t.TempDir()
	whole, err := os.ReadFile(orderFile(t, plainCard, "F64", make([]float64, linearWeights)...))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty": nil, "truncated": whole[:len(whole)-1], "longer": append(whole[:len(whole):len(whole)], 0),
		"large": make([]byte, maxMebibytes<<20+1), "policy": append(binary.LittleEndian.AppendUint64(nil, 2), "{}"...),
	} {
		path := filepath.Join(folder, name+suffix)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(path); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "folder"+suffix), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(filepath.Join(folder, "folder"+suffix)); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a folder: %v", err)
	}
}

func TestScoresThatAreNoNumbersGoLast(t *testing.T) {
	pod := &Pod{Seconds: math.NaN(), Size: math.NaN(), Wait: 0}
	for _, spec := range names[Smallest:] {
		if score := parse(t, spec).Score(pod, &Cluster{}); !math.IsInf(score, 1) {
			t.Errorf("%s: %v", spec, score)
		}
	}
}

func TestPodThatWaitedForLongGoesBeforeAllOthers(t *testing.T) {
	card := `{"name": "a", "overtaking": "any", "estimates": "none", "ageing": 600}`
	order := parse(t, orderFile(t, card, "F64", make([]float64, linearWeights)...))
	cluster := &Cluster{Capacity: 1, Free: 1}
	if score := order.Score(&Pod{Wait: 600}, cluster); score != 0 {
		t.Errorf("after 600 s: %v", score)
	}
	if score := order.Score(&Pod{Wait: 601}, cluster); !math.IsInf(score, -1) {
		t.Errorf("after 601 s: %v", score)
	}
}

func ownedBy(name string) *PodKind {
	return &PodKind{Owner: podowner.Owner{Namespace: "n", Name: name}, Stated: math.NaN()}
}

func TestEstimatesBeforeAnythingHasEnded(t *testing.T) {
	mean, spread := NewRunTimes().Estimate(ownedBy(""))
	if hour := 3600.0; mean < hour || mean > 1000*hour || spread <= 0 {
		t.Errorf("%v and %v", mean, spread)
	}
}

func TestRunsOfACronJobTeachEachOther(t *testing.T) {
	runTimes := NewRunTimes()
	estimate := func(name string) float64 {
		mean, _ := runTimes.Estimate(ownedBy(name))
		return mean
	}
	for i := range 20 {
		runTimes.Note(ownedBy(fmt.Sprintf("Job/backup-%d", 29384700+i)), 10)
		runTimes.Note(ownedBy(fmt.Sprintf("Job/train-%d", i)), 10_000)
	}
	if next, other := estimate("Job/backup-29384720"), estimate("Job/report-7"); next > 30 || other < 100 {
		t.Errorf("%v and %v", next, other)
	}
}

func TestRunTimesOutOfRange(t *testing.T) {
	runTimes := NewRunTimes()
	for _, seconds := range []float64{-1, 0, math.Inf(1), math.Inf(-1), math.NaN(), 1e300} {
		runTimes.Note(ownedBy(""), seconds)
		if mean, _ := runTimes.Estimate(ownedBy("")); !(mean >= 1 && mean <= 1<<24) {
			t.Errorf("after %v: %v", seconds, mean)
		}
	}
}

func BenchmarkEstimate(b *testing.B) {
	runTimes := NewRunTimes()
	runTimes.Note(ownedBy("Job/a"), 100)
	for b.Loop() {
		runTimes.Estimate(ownedBy("Job/a"))
	}
}

func TestACoreThatStoppedBeginsAnew(t *testing.T) {
	order, runTimes := parse(t, "shortest"), NewRunTimes()
	for i, want := range []float64{10, math.Inf(1), 10} {
		if i == 1 {
			order.scorer.instance.Close()
			runTimes.instance.Close()
		}
		if score := order.Score(&Pod{Seconds: 10}, &Cluster{}); score != want {
			t.Errorf("%d: the score is %v", i, score)
		}
		mean, _ := runTimes.Estimate(ownedBy(""))
		if isUnknown := mean == UnknownSeconds; isUnknown != (i == 1) {
			t.Errorf("%d: the estimate is %v", i, mean)
		}
	}
}
