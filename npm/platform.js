"use strict";

/**
 * The path of the program in the package for this platform.
 * @returns {string}
 */
function binaryPath() {
  const name = `gannet-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/gannet`);
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") throw error;
    throw new Error(
      `gannet: expected the package ${name}, found none: it is an optional dependency of gannet, ` +
        "which --omit=optional leaves out and which not every platform has",
      { cause: error },
    );
  }
}

module.exports = { binaryPath };
