/** An operation of a process: the times of its call and its response, in ms of one clock, and both contents. */
export interface Operation<Input, Output> {
  asked: number;
  answered: number;
  input: Input;
  output: Output;
}

/**
 * Whether some order of the operations explains all responses: each operation takes effect at one moment between its
 * call and its response (Wing and Gong's search, with Lowe's cache of failed states).
 * @param apply the state after an operation, undefined if the operation cannot have this response in this state
 */
export function isLinearizable<State, Input, Output>(
  history: readonly Operation<Input, Output>[],
  initial: State,
  apply: (state: State, input: Input, output: Output) => State | undefined,
): boolean {
  const known = new Set<string>();
  const search = (left: readonly Operation<Input, Output>[], state: State): boolean => {
    if (left.length === 0) return true;
    const here = JSON.stringify([state, left.map((operation) => history.indexOf(operation))]);
    if (known.has(here)) return false;
    known.add(here);
    // An operation that was called after the response of another one cannot come before it.
    const firstAnswer = Math.min(...left.map(({ answered }) => answered));
    return left.some((operation) => {
      if (operation.asked > firstAnswer) return false;
      const next = apply(state, operation.input, operation.output);
      return (
        next !== undefined &&
        search(
          left.filter((other) => other !== operation),
          next,
        )
      );
    });
  };
  return search(history, initial);
}

/** A call to a budget, to reserve an amount or read the amount that is taken, and the responses. */
export type BudgetInput = { reserve: number } | 'read';

/** A budget with a limit: an amount is granted exactly if it fits. */
export function budgetOf(limit: number) {
  return (taken: number, input: BudgetInput, output: boolean | number): number | undefined => {
    if (input === 'read') return output === taken ? taken : undefined;
    const fits = taken + input.reserve <= limit;
    return output === fits ? taken + (fits ? input.reserve : 0) : undefined;
  };
}

/** A key: '' if it names no job, else the handle of its job; a removal answers whether there was one to remove. */
export function keyed(handle: string, input: 'submit' | 'remove', output: string): string | undefined {
  if (input === 'remove')
    return output === '' || output === handle ? (output === '' ? handle : '') : undefined;
  return handle === '' || handle === output ? output : undefined;
}
