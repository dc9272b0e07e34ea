// Plays a workload: reads openb tables, draws arrivals and asks the core for nodes. It runs as a Web Worker.
//
// Everything follows the Python original to the digit: steersman.workloads.formats.openb (tables),
// steersman.workloads.generators.inflation (arrivals), steersman.workloads.profile (typical pods),
// steersman.simulation.metrics (GPUs allocated at the end).
"use strict";

/** @typedef {{name: string, cpu: number, memory: number, gpus: number, model: string}} Node CPU in milli, memory in bytes */
/** @typedef {{cpu: number, memory: number, gpus: number, milli: number, spec: string, models: string[]}} PodClass */
/** @typedef {{nodes: Node[], names: string[], classOf: number[], classes: PodClass[]}} Workload */
/** @typedef {{dtype: string, shape: number[], bytes: Uint8Array}} Tensor */
/** @typedef {{[name: string]: Tensor}} Arrays */

const WHOLE = 1000;
const RATIO = 1.3;
/** Of pods and of bytes of storage: more than any node uses. */
const UNLIMITED = 2 ** 60;

// Tables -------------------------------------------------------------------------------------------------------------

const NODE_COLUMNS = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
const POD_COLUMNS = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
const MOST = { cpu: 10_000_000, memory: 2 ** 28, nodeGpus: 62, podGpus: 10_000 };

/** @param {(string | number)[]} place file, line, column; "" is left out @param {string} problem @returns {Error} */
function inputError(place, problem) {
  return new Error(`${place.filter(Boolean).join(", ")}: ${problem}`);
}

/** Records of a CSV text, a blank line as one without cells. @param {string} file @param {string} text @param {string} delimiter */
function* records(file, text, delimiter) {
  const [plain, quoted, lineEnd] = [new RegExp(`[^${delimiter}\\r\\n]*`, "y"), /"((?:[^"]|"")*)"/y, /\r\n|\r|\n/y];
  const whole = `${text}\n`;
  let [line, cells] = [1, /** @type {string[]} */ ([])];
  for (let at = 0; at < whole.length;) {
    const isQuoted = whole[at] === '"' && delimiter !== "|"; // sacct quotes nothing
    const field = isQuoted ? quoted : plain;
    field.lastIndex = at;
    const match = field.exec(whole);
    if (match === null) throw inputError([file, `line ${line}`], "is not CSV: a quote is never closed");
    at = field.lastIndex;
    cells.push(isQuoted ? match[1].replaceAll('""', '"') : match[0]);
    line += match[0].split(/\r\n|\r|\n/).length - 1;
    if (whole[at] === delimiter) {
      at += 1;
      continue;
    }
    lineEnd.lastIndex = at;
    if (lineEnd.exec(whole) === null) throw inputError([file, `line ${line}`], `is not CSV: '${delimiter}' expected after '"'`);
    at = lineEnd.lastIndex;
    yield { line, cells: cells.length === 1 && cells[0] === "" ? [] : cells };
    [line, cells] = [line + 1, []];
  }
}

class Row {
  /** @param {string} file @param {number} line @param {Map<string, string>} cells */
  constructor(file, line, cells) {
    this.file = file;
    this.line = line;
    this.cells = cells;
  }

  /** @param {string} column @param {string} problem @returns {Error} */
  error(column, problem) {
    return inputError([this.file, `line ${this.line}`, column], problem);
  }

  /** @param {string} column @returns {string} */
  text(column) {
    const value = this.cells.get(column) ?? "";
    if (/[\p{C}\p{Zl}\p{Zp}]/u.test(value)) throw this.error(column, `${JSON.stringify(value)} has a character that cannot be printed`);
    return value;
  }

  /** @param {string} column @returns {string} */
  name(column) {
    if (!this.cells.get(column)) throw this.error(column, "is empty; every row needs a name");
    return this.text(column);
  }

  /** @param {string} column @param {number} most @returns {number} */
  integer(column, most) {
    const text = this.cells.get(column) ?? "";
    if (!/^[0-9]+$/.test(text)) throw this.error(column, `'${text}' is not a whole number of 0 or more`);
    if (Number(text) > most) throw this.error(column, `${text} is beyond any real machine (at most ${most})`);
    return Number(text);
  }
}

/**
 * Rows of a table, whose names are unique. @param {string} file @param {string} text @param {string[]} required
 * the first one holds names @param {string} what @returns {Generator<Row>}
 */
function* rows(file, text, required, what) {
  if (text === "") throw inputError([file], `is empty; expected a header with ${required.join(",")}`);
  const first = text.split("\n", 1)[0];
  const count = (/** @type {string} */ delimiter) => first.split(delimiter).length;
  const delimiter = [",", ";", "\t", "|"].reduce((best, each) => (count(each) > count(best) ? each : best));
  const table = records(file, text, delimiter);
  const header = table.next().value?.cells.map((cell) => cell.trim()) ?? [];
  for (const column of required) {
    if (!header.includes(column)) throw inputError([file, "line 1", column], `column is missing; ${what} needs ${required.join(",")}`);
  }
  const twice = header.find((column, i) => column && header.indexOf(column) < i);
  if (twice) throw inputError([file, "line 1", twice], "column appears twice");
  /** @type {Map<string, number>} */
  const lines = new Map();
  for (const { line, cells } of table) {
    if (cells.length === 0) continue;
    if (cells.length !== header.length) {
      throw inputError([file, `line ${line}`], `has ${cells.length} cells where the header has ${header.length}`);
    }
    const row = new Row(file, line, new Map(header.map((column, i) => [column, cells[i].trim()])));
    const name = row.name(required[0]);
    const earlier = lines.get(name);
    if (earlier) throw row.error(required[0], `'${name}' is in line ${earlier}, too; names must be unique: number them`);
    lines.set(name, line);
    yield row;
  }
  if (lines.size === 0) throw inputError([file], `has no ${required[0] === "sn" ? "nodes" : "pods"}, only a header`);
}

/** @param {string} file @param {string} text @returns {Node[]} */
function parseNodes(file, text) {
  return Array.from(rows(file, text, NODE_COLUMNS, "openb's list of nodes"), (row) => {
    const gpus = row.integer("gpu", MOST.nodeGpus);
    return {
      name: row.name("sn"), cpu: row.integer("cpu_milli", MOST.cpu), memory: row.integer("memory_mib", MOST.memory) * 2 ** 20,
      gpus, model: gpus ? row.text("model") : "",
    };
  });
}

/** @param {Row} row @returns {PodClass} */
function podClass(row) {
  const gpus = row.integer("num_gpu", MOST.podGpus);
  const milli = row.integer("gpu_milli", 2 ** 40);
  if (milli > WHOLE) throw row.error("gpu_milli", `${milli} is more than one device; it is per device, 0 to ${WHOLE}`);
  if (gpus && !milli) throw row.error("gpu_milli", `0 of each of ${gpus} GPUs; give 1 to ${WHOLE}`);
  if (milli && !gpus) throw row.error("num_gpu", `0 devices with ${milli} milli each; give the number of GPUs`);
  const spec = gpus ? row.text("gpu_spec") : "";
  const models = spec ? spec.split("|") : [];
  if (models.some((model) => !model.trim())) throw row.error("gpu_spec", `'${spec}' has an empty model; write models as A|B`);
  return { cpu: row.integer("cpu_milli", MOST.cpu), memory: row.integer("memory_mib", MOST.memory) * 2 ** 20, gpus, milli, spec, models };
}

/** @param {string} file @param {string} text @returns {Omit<Workload, "nodes">} */
function parsePods(file, text) {
  const [names, classOf] = [/** @type {string[]} */ ([]), /** @type {number[]} */ ([])];
  /** @type {Map<string, number>} */
  const numbers = new Map();
  const classes = /** @type {PodClass[]} */ ([]);
  for (const row of rows(file, text, POD_COLUMNS, "openb's list of pods")) {
    const each = podClass(row);
    const key = JSON.stringify(each);
    if (!numbers.has(key)) numbers.set(key, classes.push(each) - 1);
    names.push(row.name("name"));
    classOf.push(/** @type {number} */ (numbers.get(key)));
  }
  return { names, classOf, classes };
}

// Arrivals -----------------------------------------------------------------------------------------------------------

const [LENGTH, TAP, LEHMER] = [607, 273, 2 ** 31 - 1];

/** The stream of Go's math/rand, bit for bit: x[k] = x[k-607] + x[k-273] mod 2^64. */
class GoRand {
  /** @param {number} seed @param {bigint[]} table */
  constructor(seed, table) {
    let x = seed % LEHMER || 89482311;
    const next = () => {
      x = (48271 * x) % LEHMER;
      return BigInt(x);
    };
    for (let i = 0; i < 20; i += 1) next();
    const vector = table.map((cooked) => (next() << 40n) ^ (next() << 20n) ^ next() ^ cooked);
    this.ring = BigUint64Array.from(vector, (_, k) => BigInt.asUintN(64, vector[(2 * LENGTH - TAP - 1 - k) % LENGTH]));
    this.at = 0;
  }

  /** @returns {bigint} a number in [0, 2^63) */
  int63() {
    const { ring, at } = this;
    ring[at] += ring[(at + LENGTH - TAP) % LENGTH];
    this.at = (at + 1) % LENGTH;
    return ring[at] & 0x7fffffffffffffffn;
  }

  /** Go's rand.Intn. @param {number} n @returns {number} */
  intn(n) {
    const limit = 2 ** 31 - 1 - (2 ** 31 % n);
    let value = Number(this.int63() >> 32n);
    while (value > limit) value = Number(this.int63() >> 32n);
    return value % n;
  }

  /** Go's rand.Shuffle. @param {number[]} items */
  shuffle(items) {
    for (let i = items.length - 1; i > 0; i -= 1) {
      const n = BigInt(i + 1);
      let product = (this.int63() >> 31n) * n;
      while ((product & 0xffffffffn) < (0x100000000n - n) % n) product = (this.int63() >> 31n) * n;
      const j = Number(product >> 32n);
      [items[i], items[j]] = [items[j], items[i]];
    }
  }

  /** Go's rand.Perm. @param {number} n @returns {number[]} */
  perm(n) {
    /** @type {number[]} */
    const permutation = [];
    for (let i = 0; i < n; i += 1) {
      const j = this.intn(i + 1);
      permutation[i] = permutation[j];
      permutation[j] = i;
    }
    return permutation;
  }
}

/** @param {string[]} names @returns {number[]} their indices in order of the names */
const byName = (names) => names.map((_, i) => i).sort((i, j) => (names[i] < names[j] ? -1 : 1));

/**
 * The published inflation protocol: pods in random order, then drawn again until their demand is 1.3 times the capacity;
 * nodes in random order, which breaks ties.
 * @param {string} name @param {Workload} workload @param {number} seed @param {bigint[]} table
 * @returns {{pods: number[], nodes: number[], capacity: number}} GPU milli of the nodes
 */
function inflate(name, { nodes, names, classOf, classes }, seed, table) {
  const capacity = WHOLE * nodes.reduce((sum, { gpus }) => sum + gpus, 0);
  const demand = classOf.map((c) => classes[c].gpus * classes[c].milli);
  const [target, whole] = [RATIO * capacity, demand.reduce((sum, each) => sum + each, 0)];
  if (!capacity || !whole) throw new Error(`${name}: its ${capacity ? "pods" : "nodes"} have no GPU; the page fills the GPUs of a cluster`);
  if ((target - whole) / (whole / demand.length) > 20e6) throw new Error(`${name}: its pods request too little GPU to fill the nodes`);
  const random = new GoRand(seed, table);
  random.int63();
  const drawable = byName(names);
  const pods = [...drawable];
  random.shuffle(pods);
  let total = whole;
  if (total > target) {
    while (total > target && pods.length) total -= demand[pods.splice(random.intn(pods.length), 1)[0]];
  } else {
    for (;;) {
      const pod = drawable[random.intn(drawable.length)];
      // The published program compares with the milli of one device.
      if (total + classes[classOf[pod]].milli > target) break;
      pods.push(pod);
      total += demand[pod];
    }
  }
  if (pods.length === 0) throw new Error(`${name}: no pod arrives: each requests more than ${RATIO} times the GPUs of the nodes`);
  for (let i = 0; i < 10; i += 1) random.int63();
  const order = byName(nodes.map((node) => node.name));
  const ranked = /** @type {number[]} */ ([]);
  random.perm(order.length).forEach((rank, i) => { ranked[rank] = order[i]; });
  return { pods, nodes: ranked, capacity };
}

// Typical pods -------------------------------------------------------------------------------------------------------

/** @typedef {{cpu: number, milli: number, gpus: number, spec: string, models: string[], pods: number}} Kind */

const [MOST_KINDS, POPULARITY] = [256, 95];
/** How kinds are merged until there are few enough: ratio of CPU, and step of GPU milli. */
const ROUNDINGS = [[1.05, 5], [1.1, 10], [1.25, 25], [1.6, 50], [2.5, 100]];

/** @param {Workload} workload @returns {(Kind & {share: number})[]} the most frequent kinds, which are 95 % of all */
function typicalPods({ classOf, classes }) {
  const pods = classes.map(() => 0);
  for (const c of classOf) pods[c] += 1;
  let kinds = summed(classes.map((each, c) => ({ ...each, cpu: each.cpu || 100, pods: pods[c] })), ({ cpu }) => cpu, ({ milli }) => milli);
  let chosen = frequent(kinds);
  for (const [ratio, step] of ROUNDINGS) {
    if (chosen.length <= MOST_KINDS) break;
    kinds = summed(kinds, ({ cpu }) => Math.floor(Math.log(cpu) / Math.log(ratio)), ({ milli }) => Math.min(WHOLE, step * Math.ceil(milli / step)));
    kinds = summed(kinds, ({ cpu }) => cpu, ({ milli }) => milli);
    chosen = frequent(kinds);
  }
  const scale = chosen.reduce((sum, kind) => sum + kind.pods, 0) / classOf.length;
  return chosen.map((kind) => ({ ...kind, share: kind.pods / classOf.length / scale }));
}

/** Kinds that are equal by a key of their CPU and by GPU milli, as one. @param {Kind[]} kinds @param {(kind: Kind) => number} cpuKey @param {(kind: Kind) => number} milliOf @returns {Kind[]} */
function summed(kinds, cpuKey, milliOf) {
  /** @type {Map<string, {of: Kind, cpu: number, pods: number}>} */
  const groups = new Map();
  for (const kind of kinds) {
    const of = { ...kind, milli: milliOf(kind) };
    const key = [cpuKey(kind), of.milli, of.gpus, of.spec].join();
    const group = groups.get(key) ?? { of, cpu: 0, pods: 0 };
    group.cpu += kind.pods * kind.cpu;
    group.pods += kind.pods;
    groups.set(key, group);
  }
  return [...groups.values()].map(({ of, cpu, pods }) => ({ ...of, cpu: Math.floor(cpu / pods), pods }));
}

/** @param {Kind[]} kinds @returns {Kind[]} */
function frequent(kinds) {
  const key = (/** @type {Kind} */ { pods, cpu, milli, gpus, spec }) => [pods, cpu, milli, gpus, spec];
  const ranked = [...kinds].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    const i = a.findIndex((value, at) => value !== b[at]);
    return i < 0 ? 0 : a[i] < b[i] ? 1 : -1;
  });
  const total = kinds.reduce((sum, { pods }) => sum + pods, 0);
  let [reached, chosen] = [0, 0];
  while (chosen < ranked.length && reached * 100 < POPULARITY * total) reached += ranked[chosen++].pods;
  return ranked.slice(0, chosen);
}

// The core -----------------------------------------------------------------------------------------------------------

/** @param {number[]} shape @param {(number | bigint)[]} values @returns {Tensor} */
const integers = (shape, values) => ({ dtype: "I64", shape, bytes: new Uint8Array(BigInt64Array.from(values, BigInt).buffer) });
/** @param {number[]} shape @param {number[]} values @returns {Tensor} */
const floats = (shape, values) => ({ dtype: "F64", shape, bytes: new Uint8Array(Float64Array.from(values).buffer) });
/** @param {number[]} shape @param {boolean[]} values @returns {Tensor} */
const booleans = (shape, values) => ({ dtype: "BOOL", shape, bytes: Uint8Array.from(values, Number) });
/** @param {number[]} shape @returns {Tensor} */
const counts = (shape) => ({ dtype: "I32", shape, bytes: new Uint8Array(0) });

/** @param {Arrays} arrays @returns {Uint8Array} a safetensors file */
function written(arrays) {
  let end = 0;
  const header = Object.entries(arrays).map(([name, { dtype, shape, bytes }]) => {
    const place = [end, end += bytes.length];
    return [name, { dtype, shape, data_offsets: place }];
  });
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
  const file = new Uint8Array(8 + json.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(json, 8);
  let at = 8 + json.length;
  for (const { bytes } of Object.values(arrays)) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** @param {Uint8Array} file of safetensors @returns {Arrays} */
function opened(file) {
  const length = 8 + Number(new DataView(file.buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, length)));
  return Object.fromEntries(Object.entries(header).map(([name, { dtype, shape, data_offsets: [first, end] }]) =>
    [name, { dtype, shape, bytes: file.subarray(length + first, length + end) }]));
}

/** What the core reads of nodes, classes and typical pods. @param {Workload} workload @param {number[]} ranked @returns {Arrays} */
function clusterArrays(workload, ranked) {
  const { classes } = workload;
  const [nodes, kinds] = [ranked.map((n) => workload.nodes[n]), typicalPods(workload)];
  const types = [...new Set(nodes.map((node) => node.model).filter(Boolean))].sort();
  const specs = [...new Set(classes.map(({ spec }) => spec))];
  const [N, C, T, M, S] = [nodes, classes, kinds, types, specs].map(({ length }) => length);
  const devices = nodes.reduce((most, { gpus }) => Math.max(most, gpus), 1);
  const amounts = integers([N, 5], nodes.flatMap(({ cpu, memory }) => [cpu, memory, UNLIMITED, UNLIMITED, 0]));
  const milli = [...new Set(kinds.filter(({ gpus }) => gpus).map((kind) => kind.milli))].sort((a, b) => a - b);
  return {
    "nodes.allocatable": amounts,
    "nodes.free": amounts,
    "nodes.nonzero": integers([N, 2], Array(2 * N).fill(0)),
    "nodes.gpu_count": integers([N], nodes.map(({ gpus }) => gpus)),
    "nodes.gpu_free": integers([N, devices], nodes.flatMap(({ gpus }) => Array.from({ length: devices }, (_, d) => (d < gpus ? WHOLE : 0)))),
    "nodes.gpu_model": integers([N], nodes.map(({ model }) => (model ? types.indexOf(model) : M))),
    "nodes.gpu_kinds": integers([N, devices + 1], Array(N * (devices + 1)).fill(0)),
    "classes.request": integers([C, 5], classes.flatMap(({ cpu, memory }) => [cpu, memory, 1, 0, 0])),
    // kube-scheduler scores a container without requests as 100m and 200 MiB.
    "classes.nonzero": integers([C, 2], classes.flatMap(({ cpu, memory }) => [cpu || 100, memory || 200 * 2 ** 20])),
    "classes.gpu_count": integers([C], classes.map(({ gpus }) => gpus)),
    "classes.gpu_milli": integers([C], classes.map((each) => each.milli)),
    "classes.gpu_column": integers([C], Array(C).fill(4)),
    "classes.constraint": integers([C], classes.map(({ spec }) => specs.indexOf(spec))),
    "classes.allowed": booleans([S, N], specs.flatMap((spec) => nodes.map(({ model }) => !spec || spec.split("|").includes(model)))),
    ...noTerms(N, C),
    "profile.cpu": integers([T], kinds.map(({ cpu }) => cpu)),
    "profile.gpu_count": integers([T], kinds.map(({ gpus }) => gpus)),
    "profile.milli": integers([milli.length], milli),
    "profile.value": integers([T], kinds.map((kind) => (kind.gpus ? milli.indexOf(kind.milli) : 0))),
    "profile.accepts": booleans([T, M + 1], kinds.flatMap(({ models }) => [...types, ""].map((type) => models.length === 0 || models.includes(type)))),
    "profile.share": floats([T], kinds.map(({ share }) => share)),
    ...kubeArrays(N, S),
  };
}

/** Pods of these tables have no constraints on other pods. @param {number} N @param {number} C @returns {Arrays} */
function noTerms(N, C) {
  const rows = Object.fromEntries(["matched", "owned", "held", "domain"].map((name) => [`terms.${name}`, counts([0, N])]));
  return {
    ...rows,
    "terms.rules": integers([0, 8], []),
    "terms.rule_start": integers([C + 1], Array(C + 1).fill(0)),
    "terms.matches": booleans([1, 0], []),
    "terms.owned_terms": integers([0, 3], []),
    "terms.conflicts": booleans([0, 0], []),
    "terms.domains": integers([0], []),
    "terms.included": booleans([0, N], []),
  };
}

/** kube-scheduler's default profile on nodes of one zone without labels or taints. @param {number} N @param {number} S @returns {Arrays} */
function kubeArrays(N, S) {
  const number = (/** @type {number} */ value) => integers([], [value]);
  return {
    "kube.nodes": number(N),
    "kube.percentage": number(0),
    "kube.ignores_existing": number(1),
    "kube.weights": integers([7], [3, 2, 1, 2, 2, 1, 1]),
    "kube.hostname": number(-1),
    "kube.blank": number(0),
    "kube.lists": integers([N], Array.from({ length: N }, (_, n) => n)),
    "kube.constraints": integers([S, 6], Array(S).fill([-1, -1, -1, -1, 0, N]).flat()),
    "kube.static": integers([0, N], []),
    "kube.default_selector": integers([1], [-1]),
    "kube.default_spread": integers([0, 2], []),
    "kube.scored.fit": number(0),
    "kube.scored.strategy": number(0),
    "kube.scored.balances_change": number(1),
    "kube.scored.entries": integers([0, 2], []),
    "kube.scored.offered": booleans([0, N], []),
    "kube.scored.requested": booleans([0, S], []),
    "kube.scored.shape": integers([0, 2], []),
  };
}

class Core {
  /** @param {WebAssembly.Instance} instance */
  constructor({ exports }) {
    this.api = /** @type {any} */ (exports);
  }

  /** @param {Uint8Array} bytes @returns {number} their address */
  put(bytes) {
    const address = this.api.steersman_allocate(bytes.length) >>> 0;
    new Uint8Array(this.api.memory.buffer).set(bytes, address);
    return address;
  }

  /** @param {bigint} answer @returns {bigint} */
  checked(answer) {
    if (answer >= 0n) return answer;
    const address = this.put(new Uint8Array(1024));
    const length = Math.min(1024, this.api.steersman_error(address, 1024));
    throw new Error(new TextDecoder().decode(new Uint8Array(this.api.memory.buffer, address, length)));
  }

  /**
   * Place pods of these classes one after another.
   * @param {Uint8Array} file of the arrays @param {number[]} classes @returns {{nodes: BigInt64Array, devices: BigInt64Array}}
   */
  fill(file, classes) {
    const A = classes.length;
    const address = this.put(file);
    const decider = this.checked(this.api.steersman_decider_new(address, file.length));
    const rows = new BigInt64Array(4 * A);
    rows.set(BigInt64Array.from(classes, BigInt));
    const first = this.put(new Uint8Array(rows.buffer));
    const [classAt, labelsAt, nodesAt, devicesAt] = [0, 1, 2, 3].map((row) => first + 8 * A * row);
    this.checked(this.api.steersman_decider_fill(decider, classAt, labelsAt, nodesAt, devicesAt, A));
    const { buffer } = this.api.memory;
    const [nodes, devices] = [nodesAt, devicesAt].map((at) => new BigInt64Array(buffer, at, A).slice());
    this.api.steersman_forget(decider);
    this.api.steersman_release(address, file.length);
    this.api.steersman_release(first, 32 * A);
    return { nodes, devices };
  }
}

// Runs ---------------------------------------------------------------------------------------------------------------

/** @param {number} value @returns {number} the nearest integer, halves to even */
function toEven(value) {
  const floor = Math.floor(value);
  return floor + Number(value - floor > 0.5 || (value - floor === 0.5 && floor % 2 === 1));
}

/** @param {number} value @returns {number} to two decimals, as NumPy rounds */
const rounded = (value) => toEven(100 * value) / 100;

/** The sum in NumPy's pairwise order. @param {number[]} values @returns {number} */
function pairwise(values) {
  if (values.length > 128) {
    const half = (values.length >> 1) - ((values.length >> 1) % 8);
    return pairwise(values.slice(0, half)) + pairwise(values.slice(half));
  }
  const whole = values.length < 8 ? 0 : values.length - (values.length % 8);
  const sums = values.slice(0, Math.min(8, whole));
  for (let i = 8; i < whole; i += 1) sums[i % 8] += values[i];
  const [a, b, c, d, e, f, g, h] = sums;
  const start = whole ? a + b + (c + d) + (e + f + (g + h)) : 0;
  return values.slice(whole).reduce((sum, value) => sum + value, start);
}

/** GPUs allocated in percent at the last percent of demand that was reached, as `steersman simulate` reports them. @param {ArrayLike<number>} demand @param {ArrayLike<number>} used @param {number} capacity @returns {number} */
function allocatedAtEnd(demand, used, capacity) {
  const percents = Array.from(demand, (each) => toEven((100 * each) / capacity));
  const shares = Array.from(used, (each) => rounded((100 * each) / capacity));
  for (let last = Math.round(100 * RATIO); last >= 0; last -= 1) {
    for (const reach of [0, 1]) {
      const values = shares.filter((_, i) => Math.abs(percents[i] - last) <= reach);
      if (values.length) return rounded(pairwise(values) / values.length);
    }
  }
  return NaN;
}

/** @param {string} data in base 64 @returns {Promise<Uint8Array>} */
async function unpacked(data) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

/** @param {{name: string, bytes: ArrayBuffer}} file @returns {Promise<string>} */
async function textOf({ name, bytes }) {
  const start = new Uint8Array(bytes, 0, Math.min(2, bytes.byteLength));
  const isPacked = start[0] === 0x1f && start[1] === 0x8b;
  const content = isPacked ? new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")) : bytes;
  const encoding = start[0] === 0xff && start[1] === 0xfe ? "utf-16le" : start[0] === 0xfe && start[1] === 0xff ? "utf-16be" : "utf-8";
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(await new Response(content).arrayBuffer());
  } catch {
    throw inputError([name], isPacked ? "cannot be decompressed" : `is not ${encoding.toUpperCase()} text`);
  }
}

/** @type {ReturnType<typeof prepare> | undefined} */
let prepared;

/** @param {any} data what website/play.py writes */
async function prepare(data) {
  const [wasm, nodes, pods, table, learned] = await Promise.all(["core", "nodes", "pods", "table", "learned"].map((name) => unpacked(data[name])));
  const text = (/** @type {Uint8Array} */ bytes) => new TextDecoder().decode(bytes);
  const { instance } = await WebAssembly.instantiate(/** @type {BufferSource} */ (wasm));
  return {
    core: new Core(instance), table: text(table).trim().split(/\s+/).map((each) => BigInt(`0x${each}`)), learned: opened(learned),
    policies: data.policies, openb: { nodes: parseNodes("nodes", text(nodes)), ...parsePods("pods", text(pods)) },
  };
}

/** @param {any} request @returns {Promise<any>} */
async function play({ data, files, seed, policies }) {
  prepared ??= prepare(data);
  const { core, table, learned, openb, policies: offered } = await prepared;
  const workload = files === null ? openb
    : { nodes: parseNodes(files.nodes.name, await textOf(files.nodes)), ...parsePods(files.pods.name, await textOf(files.pods)) };
  const name = files === null ? "openb" : files.pods.name;
  const { pods, nodes, capacity } = inflate(name, workload, seed, table);
  const classes = pods.map((pod) => workload.classOf[pod]);
  const arrays = clusterArrays(workload, nodes);
  let arrived = 0;
  const demand = Float64Array.from(classes, (c) => (arrived += workload.classes[c].gpus * workload.classes[c].milli));
  const runs = policies.map((/** @type {string} */ policy) => {
    const chosen = offered[policy];
    const { functions, weights } = chosen;
    const placed = core.fill(written({
      ...arrays, ...(chosen.learned ? learned : {}), "policy.node": integers([], [chosen.node]), "policy.devices": integers([], [chosen.devices]),
      "policy.functions": integers([functions.length], functions), "policy.weights": floats([weights.length], weights), "policy.seed": integers([], [seed]),
    }), classes);
    let taken = 0;
    const used = Float64Array.from(classes, (c, a) => (taken += placed.nodes[a] < 0n ? 0 : workload.classes[c].gpus * workload.classes[c].milli));
    const node = Int32Array.from(placed.nodes, (n) => (n < 0n ? -1 : nodes[Number(n)]));
    return { policy, node, devices: placed.devices, used, percent: allocatedAtEnd(demand, used, capacity) };
  });
  return {
    name, seed, nodes: workload.nodes, capacity, demand, runs,
    milli: Uint16Array.from(classes, (c) => workload.classes[c].milli),
  };
}

onmessage = async ({ data: request }) => {
  try {
    postMessage({ number: request.number, played: await play(request) });
  } catch (error) {
    postMessage({ number: request.number, error: /** @type {Error} */ (error).message });
  }
};
