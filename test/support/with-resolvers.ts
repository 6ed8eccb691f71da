// nock 15 calls Promise.withResolvers, which Node 20 lacks.
if (!('withResolvers' in Promise))
  Object.assign(Promise, {
    withResolvers() {
      const made: Record<string, unknown> = {};
      made['promise'] = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
      return made;
    },
  });
