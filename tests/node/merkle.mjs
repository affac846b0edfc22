// Trees and proofs of @zk-kit/imt and @openzeppelin/merkle-tree for tests: one JSON document on
// stdin, a list of requests; the answers are one on stdout. The argument is the folder that the
// packages are installed in.
import fs from "node:fs";
import path from "node:path";
import crypto from "node:crypto";
import { createRequire } from "node:module";

const require = createRequire(path.join(process.argv[2], "package.json"));
const { IMT } = require("@zk-kit/imt");
const { SimpleMerkleTree, StandardMerkleTree } = require("@openzeppelin/merkle-tree");
const poseidon = require("poseidon-lite");

// SHA-256 of decimal numbers as a number modulo `order`: `ToyFieldHash` of the tests.
const toyHash = (order) => (children) => {
  const digest = crypto.createHash("sha256").update(`0:${children.join(",")}`).digest("hex");
  return BigInt(`0x${digest}`) % BigInt(order);
};
const chooseHash = ({ hash, order }) =>
  hash === "toy" ? toyHash(order) : (children) => poseidon[`poseidon${children.length}`](children);

const methods = {
  // A tree of @zk-kit/imt, and all of its proofs, before and after updates.
  imt({ depth, zero, arity, leaves, updates = [], ...rest }) {
    const tree = new IMT(chooseHash(rest), depth, BigInt(zero), arity, leaves.map(BigInt));
    for (const [index, leaf] of updates) tree.update(index, BigInt(leaf));
    return { root: tree.root, proofs: leaves.map((_, index) => tree.createProof(index)) };
  },
  verifyImt({ proof, ...rest }) {
    const { root, leaf, siblings, ...others } = proof;
    const read = { root: BigInt(root), leaf: BigInt(leaf), ...others };
    read.siblings = siblings.map((level) => level.map(BigInt));
    return IMT.verifyProof(read, chooseHash(rest));
  },
  openzeppelin({ values, types, indices }) {
    const tree = types ? StandardMerkleTree.of(values, types) : SimpleMerkleTree.of(values);
    return {
      root: tree.root,
      dump: tree.dump(),
      proofs: values.map((_, index) => tree.getProof(index)),
      multiproof: tree.getMultiProof(indices),
    };
  },
  verifyOpenzeppelin: ({ root, value, proof }) => SimpleMerkleTree.verify(root, value, proof),
  verifyOpenzeppelinMulti: ({ root, multiproof }) =>
    SimpleMerkleTree.verifyMultiProof(root, multiproof),
  loadOpenzeppelin({ dump }) {
    const tree = dump.leafEncoding ? StandardMerkleTree.load(dump) : SimpleMerkleTree.load(dump);
    return tree.root;
  },
};

const answers = JSON.parse(fs.readFileSync(0, "utf8")).map((request) =>
  methods[request.method](request),
);
process.stdout.write(
  JSON.stringify(answers, (_, each) => (typeof each === "bigint" ? `${each}` : each)),
);
