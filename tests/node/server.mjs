// snarkjs and circom for tests: requests and answers are lines of JSON on stdin and stdout.
// The argument is the folder that the packages are installed in.
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { createRequire } from "node:module";

// Libraries print to the console; stdout is for answers alone.
for (const name of ["log", "info", "debug", "warn"]) console[name] = console.error;

const require = createRequire(path.join(process.argv[2], "package.json"));
const snarkjs = require("snarkjs");

let circom; // the compiled compiler

async function compile({ source, folder, prime, libraries }) {
  const { CircomRunner, bindings } = require("circom2");
  circom ??= await WebAssembly.compile(fs.readFileSync(require.resolve("circom2/circom.wasm")));
  let printed = "";
  const capture = {
    ...fs,
    writeSync(file, buffer, ...rest) {
      if (file !== 1 && file !== 2) return fs.writeSync(file, buffer, ...rest);
      printed += Buffer.from(buffer).toString();
      return buffer.length;
    },
  };
  const relative = (name) => path.relative(process.cwd(), name) || ".";
  const preopens = {};
  for (let each = process.cwd(); ; each = path.dirname(each)) {
    preopens[relative(each)] = relative(each);
    if (each === path.dirname(each)) break;
  }
  const options = ["--r1cs", "--wasm", "--sym", "--prime", prime, "-o", relative(folder)];
  const runner = new CircomRunner({
    args: [relative(source), ...options, "-l", relative(libraries)],
    env: {},
    preopens,
    bindings: { ...bindings, fs: capture },
  });
  runner.compile = async () => circom;
  try {
    await runner.execute();
  } catch (error) {
    throw new Error(`circom: ${error.message ?? error}: ${printed}`);
  }
  if (!printed.includes("Everything went okay")) throw new Error(`circom: ${printed}`);
}

async function getCurve(name) {
  return snarkjs.curves.getCurveFromName(name);
}

// A ceremony without secrets: fit for tests only. `power` is the logarithm of its size.
async function makePtau({ curve, power, ptau }) {
  const first = `${ptau}.first`;
  await snarkjs.powersOfTau.newAccumulator(await getCurve(curve), power, first);
  await snarkjs.powersOfTau.preparePhase2(first, ptau);
  fs.unlinkSync(first);
}

// `r` and `s` are the blinding, which snarkjs draws in this order.
async function prove({ zkey, wtns, curve, r, s }) {
  const { Fr } = await getCurve(curve); // the same object that snarkjs uses
  const drawn = [r, s].map((each) => Fr.e(each));
  const random = Fr.random;
  Fr.random = () => drawn.shift();
  try {
    return await snarkjs.groth16.prove(zkey, wtns);
  } finally {
    Fr.random = random;
  }
}

const methods = {
  compile,
  makePtau,
  prove,
  setup: ({ r1cs, ptau, zkey }) => snarkjs.zKey.newZKey(r1cs, ptau, zkey),
  calculateWitness: ({ inputs, wasm, wtns }) => snarkjs.wtns.calculate(inputs, wasm, wtns),
  checkWitness: ({ r1cs, wtns }) => snarkjs.wtns.check(r1cs, wtns),
  exportVerificationKey: ({ zkey }) => snarkjs.zKey.exportVerificationKey(zkey),
  verify: ({ key, publicSignals, proof }) => snarkjs.groth16.verify(key, publicSignals, proof),
  exportSolidityCallData: ({ proof, publicSignals }) =>
    snarkjs.groth16.exportSolidityCallData(proof, publicSignals),
  async hashPoseidon({ inputs }) {
    const { buildPoseidon } = require("circomlibjs");
    methods.poseidon ??= await buildPoseidon();
    return methods.poseidon.F.toString(methods.poseidon(inputs.map(BigInt)));
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { method, parameters } = JSON.parse(line);
  let answer;
  try {
    const result = await methods[method](parameters);
    answer = { result: result ?? null };
  } catch (error) {
    answer = { error: String(error?.message ?? error) };
  }
  const text = JSON.stringify(answer, (_, each) => (typeof each === "bigint" ? `${each}` : each));
  process.stdout.write(`${text}\n`);
}
process.exit(0); // the threads of snarkjs's curves would keep the process alive
